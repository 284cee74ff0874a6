"""The row of a made step: what correcting for older weights took, in all, by lag, and by the role of the trainers."""

from __future__ import annotations

import pytest

from engine.learning.stats import ChunkStats, LagStats
from engine.learning.trainer import StepStats
from engine.run.book import Part, StepEntry
from engine.run.recorder import step_row
from engine.worker.messages import StepDone
from storage.records import StepRow

# weights 1 1 2 and 1 1: effective sizes of 16/18 and 1
OLD = LagStats(groups=2, tokens=3, mismatch_kl_sum=0.6, capped=1, weight_sum=4.0, weight_square_sum=6.0)
NEW = LagStats(groups=1, tokens=2, clipped=1, weight_sum=2.0, weight_square_sum=2.0)


def row_of(*parts: Part, learns: bool = True) -> StepRow:
    done = StepDone(
        step=5,
        stats=StepStats(version=5, learning_rate=1e-3, grad_norm=0.5, tokens=5),
        handle="weights",
        snapshot=None,
        merge_s=0.0,
        optimizer_s=0.0,
        publish_s=0.0,
        snapshot_s=0.0,
        published_at=0.0,
    )
    return step_row("run-1", StepEntry(4, 0.0, parts=list(parts)), done, staleness=1.0, now=1.0, learns=learns)


def test_the_correction_is_told_by_lag_and_by_role() -> None:
    primary = Part(1, by_role={"primary": ChunkStats(groups=1, tokens=2, by_lag={0: NEW})})
    auxiliary = Part(0, by_role={"auxiliary": ChunkStats(groups=2, tokens=3, by_lag={1: OLD})})
    metrics = row_of(primary, auxiliary).metrics
    of_old = {"groups": 2, "mismatch_kl": pytest.approx(0.2), "clip_share": 0.0, "capped_share": pytest.approx(1 / 3)}
    of_new = {"groups": 1, "mismatch_kl": 0.0, "clip_share": 0.5, "capped_share": 0.0, "ess": 1.0}
    assert metrics["by_lag"] == {"0": of_new, "1": {**of_old, "ess": pytest.approx(16 / 18)}}
    assert metrics["by_role"] == {"primary": of_new, "auxiliary": {**of_old, "ess": pytest.approx(16 / 18)}}
    # all five weights: (4 + 2)^2 / (5 * (6 + 2))
    assert metrics["ess"] == pytest.approx(36 / 40)
    assert metrics["mismatch_kl"] == pytest.approx(0.12)


def test_a_role_in_which_nothing_was_trained_is_left_out_and_not_zero() -> None:
    metrics = row_of(Part(1, by_role={"primary": ChunkStats(groups=1, tokens=2, by_lag={0: NEW})})).metrics
    assert list(metrics["by_role"]) == ["primary"]


def test_emulated_devices_tell_of_no_correction() -> None:
    part = Part(1, by_role={"primary": ChunkStats(groups=1, by_lag={0: NEW})})
    assert set(row_of(part, learns=False).metrics) == {"trained_tokens", "merge_s", "snapshot_s"}
