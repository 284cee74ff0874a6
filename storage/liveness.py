"""What a run's stored state means now. Pure: a dead engine cannot write that its runs were interrupted."""

from __future__ import annotations

from storage import words

SILENT_AFTER_S = 10.0
"""An engine beats every second or faster; ten missed beats are a dead or hung process, not a busy one."""


def effective_state(
    run_state: str, engine_beat_at: float | None, now: float, run_engine_id: str | None, engine_id: str | None
) -> str:
    """The state to show for a run.

    run_state: as stored; engine_beat_at and engine_id: of the current engine life, None without one; run_engine_id:
    the life that has the run, None while it waits for one; now: unix seconds. A run that is neither over nor queued is
    `interrupted` when its engine is another life, or silent for more than `SILENT_AFTER_S`. A queued run loses nothing
    by silence; it is interrupted only when the life that queued it is gone and the present one did not take it over.
    """
    words.require("state of a run", run_state, words.RUN_STATES)
    if run_state in words.TERMINAL:
        return run_state
    if run_state == "queued":
        return "queued" if run_engine_id in (None, engine_id) else "interrupted"
    if run_engine_id is None or run_engine_id != engine_id:
        return "interrupted"
    return "interrupted" if is_silent(engine_beat_at, now) else run_state


def is_silent(engine_beat_at: float | None, now: float) -> bool:
    """Whether the engine has not been heard for more than `SILENT_AFTER_S`."""
    return engine_beat_at is None or now - engine_beat_at > SILENT_AFTER_S
