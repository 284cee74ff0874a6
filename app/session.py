"""What a page knows about where it is: data folder, the reader's clock and name, and the run in the URL.

The app opens telemetry read-only and writes nothing but commands, tags, notes and settings; it never talks to the
engine or to Ray. Whatever it writes passes `as_operator`, which refuses viewers: a page that forgot to disable a button
still writes nothing.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import streamlit as st

from app.access import NotAllowed, access
from app.clock import PageClock
from app.price import SETTING, Price, as_setting
from storage.mailbox import Mailbox
from storage.paths import DataDir
from storage.records import RunRow

COMMAND_EXPIRES_S = 300.0
"""A command to a run that nobody took in five minutes must not fire after a restart."""

LIVE_PAGE = "app_pages/live.py"
TIMELINE_PAGE = "app_pages/timeline.py"
CONTROL_PAGE = "app_pages/control.py"
DECISIONS_PAGE = "app_pages/decisions.py"
LEARNING_PAGE = "app_pages/learning.py"
RUNS_PAGE = "app_pages/runs.py"
PLAN_PAGE = "app_pages/plan.py"
LAUNCH_PAGE = "app_pages/launch.py"

RUN_KEY = "run"
"""Name of the run in the URL; the session remembers it because changing pages clears the URL."""


def data_dir() -> DataDir:
    """The folder that BIDIRL_DATA_DIR names."""
    return DataDir.from_env()


def now() -> float:
    """Unix seconds; the one place where pages read the clock."""
    return time.time()


def page_clock() -> PageClock:
    """The browser's local time; UTC when it has not said."""
    minutes = st.context.timezone_offset
    return PageClock(offset_s=-60.0 * minutes if minutes is not None else 0.0)


def may_command() -> tuple[bool, str]:
    """Whether whoever looks at the page is an operator; for a viewer also a sentence that says why not."""
    found = access()
    return found.may_command, "" if found.may_command else found.reason


def as_operator() -> str:
    """The name for a row that is about to be written. Raises NotAllowed for a viewer."""
    found = access()
    if not found.may_command:
        raise NotAllowed(found.reason)
    return found.who


def send(
    kind: str,
    payload: dict[str, object],
    *,
    run: RunRow | None = None,
    idem_key: str | None = None,
    expected_effect: str | None = None,
    expires_in_s: float | None = COMMAND_EXPIRES_S,
    expected_config_version: int | None = None,
) -> int:
    """Put a command into the mailbox; returns its id. Raises NotAllowed (a viewer), DatabaseBroken or SchemaTooNew."""
    who = as_operator()
    seen = run.config_version if run and kind == "staleness" else None
    with Mailbox(data_dir().control_db) as mailbox:
        return mailbox.send(
            kind,
            payload,
            run.run_id if run else None,
            who=who,
            idem_key=idem_key,
            expires_in_s=expires_in_s,
            expected_config_version=seen if expected_config_version is None else expected_config_version,
            expected_effect=expected_effect,
        )


def change_tags(run_ids: Sequence[str], *, add: Sequence[str], remove: Sequence[str]) -> None:
    """Give and take tags of runs. Raises NotAllowed (a viewer), DatabaseBroken or SchemaTooNew."""
    who = as_operator()
    with Mailbox(data_dir().control_db) as mailbox:
        for run_id in run_ids:
            for tag in add:
                mailbox.add_tag(run_id, tag, who=who)
            for tag in remove:
                mailbox.remove_tag(run_id, tag)


def set_note(run_id: str, text: str) -> None:
    """Replace a run's note. Raises like `change_tags`."""
    who = as_operator()
    with Mailbox(data_dir().control_db) as mailbox:
        mailbox.set_note(run_id, text, who=who)


def set_price(price: Price | None) -> None:
    """What a device-hour costs from now on; None for no price. Raises like `change_tags`."""
    who = as_operator()
    with Mailbox(data_dir().control_db) as mailbox:
        mailbox.set_setting(SETTING, as_setting(price), who=who)


def run_in_url() -> str | None:
    """The run that the URL names, None when it names none."""
    return st.query_params.get(RUN_KEY) or None


def look_at(run_id: str) -> None:
    """Make `run_id` the run of this session and of the URL."""
    remember(run_id)
    if st.query_params.get(RUN_KEY) != run_id:
        st.query_params[RUN_KEY] = run_id


def choose_run(runs: Sequence[RunRow], named: str | None) -> RunRow | None:
    """The named run, None when it is not among `runs`; without a name what the session saw last, else the newest."""
    wanted = named or st.session_state.get("_run")
    found = next((run for run in runs if run.run_id == wanted), None)
    return found or (runs[0] if runs and named is None else None)


def remember(run_id: str) -> None:
    """The run that other pages of this session show next, without touching this page's URL."""
    st.session_state["_run"] = run_id
