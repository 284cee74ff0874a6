"""The sample viewer: prompts, answers, rewards, lag and versions; searched, filtered, and sorted by reward.

Texts are shown as they are, never as markup. It reads one page of groups at a time.
"""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from app.clock import DASH, PageClock, duration
from app.glossary import help_of, helps_of
from app.markup import literal
from app.status import symbol
from storage.filters import SORTS, GroupFilter
from storage.reader import TelemetryReader
from storage.records import DeviceRow, GroupRow, RunRow
from storage.words import GROUP_STATES, ROLES

PAGE_GROUPS = 12
"""Groups listed at once."""

QUESTION_HELP = (
    "The question as the task words it. The form in which the model was given it, chat template included, is in the "
    "run's log: the model is asked …"
)

FINISHED_ON = {"primary": "a primary rollouter", "auxiliary": "an auxiliary rollouter"}


def samples(reader: TelemetryReader, run: RunRow, clock: PageClock) -> None:
    """Filters, a list of groups, and the chosen group in full. Newest first unless another order is asked for; read
    again when something is chosen. Raises what the reader raises."""
    wanted, page, asked = _filters(reader, run)
    groups = reader.groups_where(run.run_id, wanted, PAGE_GROUPS, (page - 1) * PAGE_GROUPS)
    if not groups:
        st.caption("No group matches." if asked or page > 1 else "No group has been consumed yet.")
        return
    left, right = st.columns([5, 6], gap="medium")
    with left:
        chosen = st.dataframe(
            [_row(group) for group in groups],
            hide_index=True,
            on_select="rerun",
            selection_mode="single-row",
            key="samples_table",
            placeholder=DASH,
            column_config={
                "reward": st.column_config.ProgressColumn(min_value=0, max_value=1, format="%.2f", width="small"),
                "prompt": st.column_config.TextColumn("question", width="medium", help=QUESTION_HELP),
            },
        )
    picked = list(chosen["selection"]["rows"])
    group = groups[picked[0]] if picked and picked[0] < len(groups) else groups[0]
    with right, st.container(key="sample"):
        _group(group, clock)


def _filters(reader: TelemetryReader, run: RunRow) -> tuple[GroupFilter, int, bool]:
    """What is asked for, the page of it, and whether anything narrows it."""
    head = st.columns([2, 2, 4, 1.4, 1.4], vertical_alignment="bottom", gap="small")
    step_text = head[0].text_input("Step", key="samples_step", placeholder="newest")
    state = head[1].selectbox("State", ["all", *GROUP_STATES], key="samples_state")
    search = head[2].text_input("Search in prompts and answers", key="samples_search", icon=symbol("search")).strip()
    page = int(head[3].number_input("Page", min_value=1, value=1, step=1, key="samples_page"))
    head[4].button("Newest", icon=symbol("refresh"), key="samples_refresh", width="stretch")
    below = st.columns([1.5, 1.5, 1.5, 2.4, 2, 2], vertical_alignment="bottom", gap="small")
    low = below[0].number_input(
        "Reward from", value=None, step=0.1, format="%.3g", key="samples_low", placeholder="any"
    )
    high = below[1].number_input("to", value=None, step=0.1, format="%.3g", key="samples_high", placeholder="any")
    lag = below[2].number_input("Lag", min_value=0, value=None, step=1, key="samples_lag", placeholder="any")
    by_role = devices_by_role(reader.devices(run.run_id))
    role = below[3].selectbox(
        "Finished on", ["", *ROLES], format_func=lambda name: FINISHED_ON.get(name, "any device"), key="samples_role",
        disabled=not by_role, help="by the present home of the device that sampled its last token",
    )  # fmt: skip
    sort = below[4].selectbox("Order", list(SORTS), key="samples_sort")
    silent = below[5].toggle("without signal", key="samples_silent", help=help_of("no_signal_groups"))
    step, problem = parse_step(step_text)
    if problem:
        head[0].markdown(f":small[:red[{literal(problem)}]]")
    if low is not None and high is not None and low > high:
        below[1].markdown(":small[:red[must be at least the reward on the left]]")
        high = None
    wanted = GroupFilter(
        step=step,
        state=None if state == "all" else state,
        search=search,
        rewards=(low, high),
        lag=None if lag is None else int(lag),
        devices=by_role.get(role or ""),
        no_signal=silent,
        sort=sort,
    )
    return wanted, page, bool(step_text) or wanted != GroupFilter(sort=sort)


def devices_by_role(devices: Sequence[DeviceRow]) -> dict[str, frozenset[int]]:
    """primary and auxiliary rollouters -> devices, by their home; empty without pools."""
    homes = {"primary": "rollout", "auxiliary": "train"}
    found = {role: frozenset(d.device for d in devices if d.pool == pool) for role, pool in homes.items()}
    return found if any(found.values()) else {}


def parse_step(text: str) -> tuple[int | None, str]:
    """The step asked for, and what is wrong with it; an empty text asks for all steps."""
    text = text.strip()
    if not text:
        return None, ""
    if text.isascii() and text.isdecimal() and len(text) < 10:
        return int(text), ""
    return None, f"must be the number of a step, got {text!r}"


def _row(group: GroupRow) -> dict[str, object]:
    return {
        "group": group.group_id,
        "step": group.step,
        "reward": group.reward_mean,
        "lag": group.lag,
        "state": group.state if not group.reason else f"{group.state}: {group.reason.replace('_', ' ')}",
        "prompt": group.prompt,
    }


def _group(group: GroupRow, clock: PageClock) -> None:
    facts = [f"**group {group.group_id}**", f"item {group.item}, epoch {group.epoch}", f"version {group.version}"]
    if group.lag is not None:
        facts.append(f"lag {group.lag} of at most {group.bound:g}")
    facts.append(f"{duration(max(0.0, group.finished_at - group.started_at))}, done {clock.time(group.finished_at)}")
    st.markdown(" · ".join(facts), help=helps_of("group_lag", "group_reward"))
    st.caption("question", help=QUESTION_HELP)
    st.code(group.prompt, language=None, wrap_lines=True)
    for response in group.responses:
        reward = response.get("reward")
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            if reward is None:
                st.badge("no reward", icon=symbol("block"), color="gray")
            else:
                good = float(reward) > 0
                st.badge(
                    f"reward {reward:g}", icon=symbol("check" if good else "close"), color="green" if good else "gray"
                )
            st.caption(_versions(response), width="content")
        st.code(str(response.get("text", "")), language=None, wrap_lines=True)


def _versions(response: dict[str, object]) -> str:
    tokens = response.get("tokens")
    ranges = response.get("versions")
    told = f"{tokens} tokens" if tokens is not None else ""
    if isinstance(ranges, list) and ranges:
        told += " · version " + ", ".join(f"{version} ({count})" for version, count in ranges)
    return told.strip(" ·")
