"""Emulated nodes on a virtual clock, as whole runs use them: order, delays, and nodes that are lost."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from engine.devices import Report
from engine.emulated.node import STARTUP_S
from engine.worker import messages as msg
from tests.emulated.builders import generate, load, make_job, make_specs
from tests.emulated.virtual_workers import BEGIN, COALESCE_S, DELAY_S, VirtualWorkers

SPECS = make_specs(make_job(devices={"partition": "32:32"}))


def events(reports: list[Report]) -> dict[int, list[str]]:
    return {
        report.device: [type(event).__name__ for event in report.delivery.events]
        for report in reports
        if report.delivery is not None
    }


def started() -> VirtualWorkers:
    workers = VirtualWorkers(start_s=0.1)
    workers.start(SPECS)
    assert events(workers.wait(1.0)) == {device: ["Started"] for device in range(64)}
    assert events(workers.wait(1.0)) == {device: ["Ready"] for device in range(64)}
    return workers


def test_time_moves_only_to_the_next_moment_at_which_something_is_told() -> None:
    workers = started()
    assert workers.clock.now == pytest.approx(BEGIN + 0.1 + STARTUP_S + DELAY_S, abs=1e-5)
    assert workers.empty
    before = workers.clock.now
    workers.submit("run", 3, load(0))
    assert events(workers.wait(1.0)) == {3: ["WeightsLoaded"]}
    assert workers.clock.now - before == pytest.approx(2 * DELAY_S, abs=1e-5)
    assert workers.wait(0.25) == []
    assert workers.clock.now - before == pytest.approx(2 * DELAY_S + 0.25, abs=1e-5)


def test_a_finished_group_is_told_after_the_moment_in_which_others_may_join_it() -> None:
    workers = started()
    workers.submit("run", 0, load(0))
    workers.submit("run", 0, generate(0, 3))
    workers.wait(1.0)
    (report,) = [report for _ in range(3) for report in workers.wait(10.0) if events([report])[report.device]][:1]
    assert report.delivery is not None
    (scored,) = report.delivery.events
    assert isinstance(scored, msg.GroupScored)
    assert workers.clock.now >= scored.group.finished_at + DELAY_S
    assert report.delivery.at <= scored.group.finished_at + COALESCE_S + 1e-5


def test_a_lost_node_is_a_loss_for_each_device_and_devices_started_again_share_one() -> None:
    workers = started()
    workers.submit("run", 40, load(0))
    workers.lose(40)
    lost = workers.wait(math.inf)
    assert [(report.device, report.lost) for report in lost] == [(n, "its process died") for n in range(32, 64)]
    for report in lost:
        workers.start([replace(SPECS[report.device], source=False)])
    assert events(workers.wait(1.0)) == {device: ["Started"] for device in range(32, 64)}
    assert len(workers._hosts) == 2
