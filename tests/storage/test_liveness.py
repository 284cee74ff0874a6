"""A run whose engine died is interrupted, not running."""

from __future__ import annotations

import pytest

from storage import words
from storage.liveness import effective_state


@pytest.mark.parametrize(
    ("state", "beat_at", "run_engine", "engine", "shown"),
    [
        pytest.param("running", 95.0, "e1", "e1", "running", id="fresh beat"),
        pytest.param("running", 90.0, "e1", "e1", "running", id="silent for exactly ten seconds"),
        pytest.param("running", 89.9, "e1", "e1", "interrupted", id="silent for longer"),
        pytest.param("paused", 99.0, "e1", "e2", "interrupted", id="another life"),
        pytest.param("warming_up", None, "e1", None, "interrupted", id="no engine at all"),
        pytest.param("starting", 99.0, None, "e1", "interrupted", id="active without an engine"),
        pytest.param("queued", None, None, None, "queued", id="waits for its first engine"),
        pytest.param("queued", 1.0, "e1", "e1", "queued", id="a queued run loses nothing by silence"),
        pytest.param("queued", 99.0, "e1", "e2", "interrupted", id="queued by a life that is gone"),
    ],
)
def test_the_state_shown(
    state: str, beat_at: float | None, run_engine: str | None, engine: str | None, shown: str
) -> None:
    assert effective_state(state, beat_at, 100.0, run_engine, engine) == shown


@pytest.mark.parametrize("state", words.TERMINAL)
def test_what_is_over_stays_as_it_ended(state: str) -> None:
    assert effective_state(state, None, 100.0, "e1", "e2") == state


def test_an_unknown_state_is_refused() -> None:
    with pytest.raises(ValueError, match="state of a run must be one of queued"):
        effective_state("zombie", 1.0, 1.0, "e", "e")
