"""Who starts when devices get free."""

from __future__ import annotations

import pytest

from engine.config import Job, parse_job
from engine.config.job import MAX_EMULATED_DEVICES
from engine.waiting import Waiting


def job(devices: int, kind: str = "cpu") -> Job:
    return parse_job(f"devices: {{kind: {kind}, count: {devices}, oversubscribe: true}}")


def waiting(*jobs: Job) -> Waiting:
    queue = Waiting()
    for number, each in enumerate(jobs):
        queue.add(str(number), each)
    return queue


@pytest.mark.parametrize(
    ("jobs", "free", "emulated", "started"),
    [
        pytest.param([job(2), job(2)], 2, 0, [("0", 2)], id="one after the other"),
        pytest.param([job(2), job(2)], 4, 0, [("0", 2), ("1", 2)], id="side by side"),
        pytest.param([job(3), job(2)], 2, 0, [], id="nobody overtakes"),
        pytest.param([job(8), job(2)], 4, 0, [("0", 4)], id="oversubscribed: it takes every core"),
        pytest.param([job(3), job(16, "emulated"), job(2)], 2, 0, [("1", 0)], id="emulated devices need no core"),
        pytest.param([job(16, "emulated"), job(2)], 2, 0, [("0", 0), ("1", 2)], id="both kinds at once"),
        pytest.param(
            [job(16, "emulated"), job(8, "emulated"), job(2)],
            2,
            MAX_EMULATED_DEVICES - 8,
            [("2", 2)],
            id="no room for more emulated devices, and none overtakes there either",
        ),
    ],
)
def test_devices_go_to_whoever_waited_longest(
    jobs: list[Job], free: int, emulated: int, started: list[tuple[str, int]]
) -> None:
    queue = waiting(*jobs)
    ready = [(run_id, need) for run_id, _, need in queue.ready(cores=4, free=free, emulated=emulated)]
    assert ready == started
    assert all((str(number) in queue) == (str(number) not in dict(started)) for number in range(len(jobs)))


def test_a_run_that_is_taken_out_waits_no_more() -> None:
    queue = waiting(job(2))
    queue.remove("0")
    assert "0" not in queue
    assert list(queue.ready(cores=2, free=2, emulated=0)) == []
