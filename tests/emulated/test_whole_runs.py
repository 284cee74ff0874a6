"""The engine over emulated nodes against the simulator on the same work: one policy, one physics, two programs."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from engine import simulation
from engine.config import Job, load_job
from planner.policy.leases import DIRECTIONS
from tests.emulated.virtual_run import VirtualRun
from tests.emulated.virtual_workers import VirtualWorkers

JOB = Path(__file__).resolve().parents[2] / "jobs" / "emulated_16.yaml"

THROUGHPUT, IDLE = 0.03, 0.03
"""How far the two may be apart: a share of the throughput, and points of the idle share, of all of it and by cause."""


def job(arm: str, *settings: str) -> Job:
    common = ["algorithm.steps=20", "devices.time_scale=0.1", f"schedule.arm={arm}"]
    return load_job(JOB, [*common, *settings])


CELLS = [
    ("no_borrow", "4:12", 0.0),
    ("no_borrow", "12:4", 1.0),
    ("bidirectional_paper", "12:4", 0.0),
    ("bidirectional_paper", "8:8", 0.0),
    ("bidirectional_paper", "12:4", 4.0),
    ("bidirectional_paper", "8:8", 4.0),
    ("bidirectional_paper", "12:4", 4.0),
    ("opportunistic", "4:12", 0.5),
    ("opportunistic", "4:12", 4.0),
    ("rollout_on_train", "4:12", 1.0),
    ("train_on_rollout", "12:4", 0.0),
    ("bidirectional", "4:12", 0.0),
    ("bidirectional", "8:8", 0.5),
    ("bidirectional", "8:8", 2.0),
]


@pytest.mark.parametrize(("arm", "partition", "staleness"), CELLS)
def test_an_emulated_run_takes_the_time_that_the_simulator_foretells(
    arm: str, partition: str, staleness: float, tmp_path: Path
) -> None:
    played = VirtualRun(job(arm, f"devices.partition={partition}", f"schedule.staleness={staleness}"), tmp_path).play()
    foretold = simulation.simulate(played.job)
    assert played.run.error is None
    assert played.run.state == "finished"
    assert played.throughput == pytest.approx(foretold["throughput_tokens_per_s"], rel=THROUGHPUT)
    assert played.shares["idle"] == pytest.approx(foretold["idle"]["fraction"], abs=IDLE)
    assert sum(row.prompt_tokens + row.response_tokens for row in played.rows) == foretold["tokens"]
    causes = foretold["idle"]["by_cause"]
    for cause in {*causes, *played.idle}:
        assert played.idle.get(cause, 0.0) == pytest.approx(causes.get(cause, 0.0), abs=IDLE), cause


def test_without_pools_too(tmp_path: Path) -> None:
    played = VirtualRun(job("colocated", "devices.partition=auto"), tmp_path).play()
    foretold = simulation.simulate(played.job)
    assert played.throughput == pytest.approx(foretold["throughput_tokens_per_s"], rel=THROUGHPUT)
    assert played.shares["idle"] == pytest.approx(foretold["idle"]["fraction"], abs=IDLE)


def test_every_device_of_a_replica_shows_its_span_and_every_life_is_gapless(tmp_path: Path) -> None:
    played = VirtualRun(job("bidirectional", "devices.partition=8:8"), tmp_path).play()
    assert played.recorder.leases, "nothing was lent, so nothing of leases was tested"
    assert {lease.direction for lease in played.recorder.leases} <= set(DIRECTIONS)
    assert all(lease.devices == list(range(lease.block, lease.block + 4)) for lease in played.recorder.leases)
    for device, spans in played.spans.items():
        assert all(before[1] == after[0] for before, after in pairwise(spans)), device
    trained = [[span for span in played.spans[device] if span[2] == "optimizer"] for device in (8, 9, 10, 11)]
    assert trained[0]
    assert trained[1:] == [trained[0]] * 3


def test_a_node_that_dies_comes_back_and_the_run_ends_well(tmp_path: Path) -> None:
    workers = VirtualWorkers()
    run = VirtualRun(job("bidirectional", "devices.partition=48:16", "devices.count=64"), tmp_path, workers=workers)
    workers.at(20.0, lambda: workers.lose(40))
    run.play()
    assert (run.run.state, run.run.error) == ("finished", None)
    assert run.run.recovery.count == 32, "a node of 32 devices died, and each of them is counted"
    assert len(run.rows) == 20
    consumed = [group.index for step, _ in run.recorder.steps for group in step.taken]
    assert sorted(consumed) == list(range(len(consumed)))


def test_nothing_that_is_learnt_is_told_of_devices_that_learn_nothing(tmp_path: Path) -> None:
    played = VirtualRun(job("no_borrow", "algorithm.steps=3"), tmp_path).play()
    for row in played.rows:
        assert (row.reward_mean, row.loss, row.grad_norm, row.entropy) == (None,) * 4
        assert set(row.metrics) <= {"trained_tokens", "merge_s", "snapshot_s", "publish_s", "publish_latency_s"}
    assert played.recorder.evals == []
    assert list(tmp_path.iterdir()) == []
