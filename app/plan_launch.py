"""From a plan to the Launch page: a button that leads there with the job filled in. It launches nothing itself."""

from __future__ import annotations

from dataclasses import dataclass

import streamlit as st

from app import plan_state, session
from app.markup import literal
from app.status import symbol
from engine.config import JobError


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """What is set in a job before it is launched."""

    arm: str
    partition: str | None
    """rollout:train; None for an arm without pools."""
    staleness: float
    devices: int
    """Of both pools."""

    @property
    def label(self) -> str:
        """ "8:8 · staleness 1"."""
        return f"{self.partition} · staleness {self.staleness:g}" if self.partition else self.arm


def launch_button(point: Point, *, key: str, job: str, text: str, base_dir: str | None, problem: str = "") -> None:
    """The button; viewers see it and cannot press it.

    job: what the job is called; text: its file, which keeps everything but the point. problem: why it cannot be.
    """
    allowed, lacks = session.may_command()
    pressed = st.button(
        f"Launch {point.label}",
        icon=symbol("rocket_launch"),
        key=key,
        disabled=not allowed or bool(problem),
        help="Opens the Launch page with this job filled in; nothing starts before it is sent there.",
    )
    if not allowed or problem:
        st.caption(literal(problem or lacks), width="content")
    if not pressed or not allowed or problem:
        return
    settings = plan_state.settings_for(
        partition=point.partition, staleness=point.staleness, arm=point.arm, devices=point.devices
    )
    try:
        name = plan_state.launched(text, base_dir, settings, name=f"{job} · {point.label}")
    except JobError as error:
        st.error(literal(str(error)), icon=symbol("error"))
        return
    st.switch_page(session.LAUNCH_PAGE, query_params={"plan": name})
