"""The sample viewer: prompts, answers, rewards, lag and versions. Texts are shown as they are, never as markup."""

from __future__ import annotations

import streamlit as st

from app.clock import PageClock, duration
from app.markup import literal
from app.status import symbol
from storage.reader import TelemetryReader
from storage.records import GroupRow, RunRow

PAGE_GROUPS = 12
"""Groups listed at once."""


def samples(reader: TelemetryReader, run: RunRow, clock: PageClock) -> None:
    """Filters, a list of groups, and the chosen group in full. Newest first; read again when something is chosen."""
    head = st.columns([2, 2, 4, 1.4, 1.4], vertical_alignment="bottom", gap="small")
    step_text = head[0].text_input("Step", key="samples_step", placeholder="newest")
    state = head[1].selectbox("State", ["all", "consumed", "excluded"], key="samples_state")
    search = head[2].text_input("Search in prompts and answers", key="samples_search", icon=symbol("search"))
    page = int(head[3].number_input("Page", min_value=1, value=1, step=1, key="samples_page"))
    head[4].button("Newest", icon=symbol("refresh"), key="samples_refresh", width="stretch")
    step, problem = parse_step(step_text)
    if problem:
        head[0].markdown(f":small[:red[{literal(problem)}]]")
    groups = reader.groups(
        run.run_id,
        step=step,
        state=None if state == "all" else state,
        search=search.strip() or None,
        limit=PAGE_GROUPS,
        offset=(page - 1) * PAGE_GROUPS,
    )
    if not groups:
        st.caption(
            "No group matches."
            if step_text or search or state != "all" or page > 1
            else "No group has been consumed yet."
        )
        return
    left, right = st.columns([5, 6], gap="medium")
    with left:
        chosen = st.dataframe(
            [_row(group) for group in groups],
            hide_index=True,
            on_select="rerun",
            selection_mode="single-row",
            key="samples_table",
            column_config={
                "reward": st.column_config.ProgressColumn(min_value=0, max_value=1, format="%.2f", width="small"),
                "prompt": st.column_config.TextColumn(width="medium"),
            },
        )
    picked = list(chosen["selection"]["rows"])
    group = groups[picked[0]] if picked and picked[0] < len(groups) else groups[0]
    with right, st.container(key="sample"):
        _group(group, clock)


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
    st.markdown(" · ".join(facts))
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
