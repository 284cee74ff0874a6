"""Random commands against the real run loop: nothing is lost, nothing hangs, and what was accepted last is what is."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.engine.command_storms import play_storm

SEEDS = range(60)


def test_random_commands_leave_every_run_whole_and_every_command_answered(tmp_path: Path) -> None:
    counts: Counter[str] = Counter()
    for seed in SEEDS:
        try:
            play_storm(seed, tmp_path / str(seed), counts)
        except AssertionError as error:
            pytest.fail(f"storm {seed}: {error}")
    # what the storms are for did happen
    assert counts["commands"] > 500
    for what in ("accepted partition", "accepted undo", "superseded", "expired", "stopped", "deaths"):
        assert counts[what] > 10, what
    assert counts["moved devices"] > 50
    assert counts["leases"] > 100
