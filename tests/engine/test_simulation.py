"""A job's simulated run: what is simulated, the fields of its result, and figures that must add up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine import results, simulation
from engine.config import Job, JobError
from engine.config.job import ARMS as ALL_ARMS
from engine.config.planning import Known, plan_job
from engine.config.playing import Recorded, chosen_split, setup_of
from engine.simulation import simulate
from planner.policy.actions import Refuse
from planner.policy.improvements import DEFAULT
from planner.simulator.bounds import fluid_throughput
from planner.simulator.setup import Setup
from planner.simulator.simulator import Simulator
from storage.reader import TelemetryReader
from storage.writer import TelemetryWriter
from tests.engine.test_planning import make_job
from tests.engine.test_results import FIELDS
from tests.storage.builders import RUN, T0

SHORT = "algorithm.steps=5"
ARMS = tuple(arm for arm in ALL_ARMS if arm != "colocated")
"""Those with pools."""


def setup_for(*settings: str) -> Setup:
    job = make_job(*settings)
    planned = plan_job(job)
    return setup_of(job, planned.known, chosen_split(job, planned))


def made(job: Job) -> dict[str, Any]:
    """The result as JSON gives it."""
    found: dict[str, Any] = json.loads(json.dumps(simulate(job), allow_nan=False))
    return found


# -- what is simulated ------------------------------------------------------------------------------------------------


def test_the_setup_is_the_job() -> None:
    setup = setup_for("seed=3", "schedule.staleness=0.5", "schedule.improvements={keep_lease: false}")
    assert (setup.arm, setup.streaming, setup.staleness, setup.seed) == ("bidirectional", True, 0.5, 3)
    assert (setup.rollout_devices, setup.train_devices) == (8, 8)
    assert (setup.rollout_replica_size, setup.train_replica_size) == (1, 4)
    assert (setup.prompts_per_step, setup.group_size, setup.steps) == (64, 8, 14)
    assert setup.directions == {"rollout_on_train", "train_on_rollout"}
    assert setup.improvements == DEFAULT.without("keep_lease")
    assert setup.profile.response_tokens.linear_drift == 0.3


def test_what_a_job_may_not_lend_is_not_lent_when_it_is_played() -> None:
    setup = setup_for("schedule.borrow={train_on_rollout: false, lend_cap: 4, min_lease_s: 2.5}")
    assert setup.directions == {"rollout_on_train"}
    assert (setup.lend_cap, setup.min_lease_s) == (4, 2.5)
    lent = made(make_job(SHORT, "devices.partition=12:4", "schedule.borrow={train_on_rollout: false}"))["leases"]
    assert not any(lent["train_on_rollout"].values())
    nothing = made(make_job(SHORT, "devices.partition=12:4", "schedule.borrow={lend_cap: 0}"))["leases"]
    assert nothing["train_on_rollout"]["admitted"] == 0


@pytest.mark.parametrize(
    ("arm", "directions"),
    [
        ("no_borrow", {"rollout_on_train", "train_on_rollout"}),
        ("opportunistic", {"rollout_on_train", "train_on_rollout"}),
        ("bidirectional_paper", {"rollout_on_train", "train_on_rollout"}),
        ("rollout_on_train", {"rollout_on_train"}),
        ("train_on_rollout", {"train_on_rollout"}),
    ],
)
def test_all_arms_but_bidirectional_take_whole_batches_and_may_lend_in_their_directions(
    arm: str, directions: set[str]
) -> None:
    setup = setup_for(f"schedule.arm={arm}")
    assert (setup.arm, setup.streaming, setup.directions) == (arm, False, directions)


def test_consume_that_is_set_goes_before_the_arms() -> None:
    assert not setup_for("schedule.consume=whole_batch").streaming
    assert setup_for("schedule.arm=no_borrow", "schedule.consume=stream").streaming


@pytest.mark.parametrize("arm", ["bidirectional", "no_borrow"])
def test_an_automatic_partition_is_the_planners_best_for_the_arm(arm: str) -> None:
    settings = (f"schedule.arm={arm}", "devices.count=32", "devices.partition=auto", "profile.train.tokens_per_s=1200")
    job = make_job(*settings)
    planned = plan_job(job)
    best = planned.plan.best if arm == "no_borrow" else planned.plan.best_borrowing
    assert best is not None
    assert chosen_split(job, planned) == best


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        pytest.param(
            ["devices.partition=10:6"],
            "devices.partition: '10:6' is not feasible for arm 'bidirectional': 6 trainer devices are not a multiple "
            "of the trainer replica size 4",
            id="no whole replicas",
        ),
        pytest.param(
            ["devices.partition=14:4", "devices.count=18"],
            "devices.partition: '14:4' is not feasible for arm 'bidirectional': 14 rollout devices are not a multiple "
            "of the trainer replica size 4, so they cannot all be lent",
            id="a pool that cannot be lent",
        ),
        pytest.param(
            ["devices.partition=auto", "devices.count=18"],
            "devices.count: none of the 17 splits of 18 devices is feasible; at 9:9, 9 trainer devices are not a "
            "multiple of the trainer replica size 4",
            id="nothing is feasible",
        ),
    ],
)
def test_a_partition_that_cannot_be_is_refused_with_the_planners_reason(settings: list[str], line: str) -> None:
    with pytest.raises(JobError) as caught:
        simulate(make_job(*settings), source="file.yaml")
    assert str(caught.value) == f"file.yaml: {line}"


def test_a_pool_that_cannot_be_lent_is_no_fault_of_an_arm_that_lends_nothing() -> None:
    setup = setup_for("devices.partition=14:4", "devices.count=18", "schedule.arm=no_borrow")
    assert (setup.rollout_devices, setup.train_devices, setup.lendable) == (14, 4, False)


# -- its result -------------------------------------------------------------------------------------------------------


def test_a_result_has_the_fields_of_a_live_run(tmp_path: Path) -> None:
    writer = TelemetryWriter(tmp_path / "telemetry.db", clock=lambda: T0)
    writer.run(RUN, name="demo", state="running", arm="no_borrow", created_at=T0)
    writer.close()
    with TelemetryReader(tmp_path / "telemetry.db") as reader:
        stored = reader.run(RUN)
        assert stored is not None
        live = results.build(reader, stored)
    simulated = made(make_job(SHORT))
    # and it says what it went by
    assert list(simulated) == [*live, "source"]
    assert simulated["source"] == "profile"
    assert set(simulated) >= FIELDS
    for name in ("reward", "lag", "ledger", "switch", "model_error"):
        assert set(simulated[name]) == set(live[name]), name
    assert set(simulated["idle"]) >= {"fraction", "by_cause", "structural_fraction", "residual_fraction"}


def test_what_a_simulation_cannot_know_is_null_and_never_0() -> None:
    found = made(make_job(SHORT))
    assert (found["kind"], found["state"], found["run_id"], found["params_sha256"]) == (
        "simulated",
        "finished",
        None,
        None,
    )
    assert found["reward"] == {"first": None, "last": None, "per_step": []}
    assert (found["eval"], found["excluded"]) == ([], {})
    assert set(found["ledger"].values()) == {None}
    assert all(counts["refused"] >= 0 for counts in found["leases"].values())
    one = made(make_job("algorithm.steps=1"))
    assert (one["throughput_tokens_per_s"], one["bound_ratio"]) == (None, None)


@pytest.mark.parametrize("arm", ARMS)
def test_the_figures_of_a_result_add_up(arm: str) -> None:
    found = made(make_job(SHORT, f"schedule.arm={arm}"))
    idle = found["idle"]
    assert (found["arm"], found["steps"], len(found["step_s"])) == (arm, 5, 5)
    assert sum(found["step_s"]) == pytest.approx(found["wall_s"])
    assert sum(found["lag"]["histogram"].values()) == 5 * 64
    assert sum(idle["by_cause"].values()) == pytest.approx(idle["fraction"])
    assert idle["structural_fraction"] + idle["residual_fraction"] == pytest.approx(idle["fraction"])
    assert 0 < found["utilisation"] <= 1 - idle["fraction"]
    assert 0 < found["bound_ratio"] < found["utilisation"] + 0.1
    for counts in found["leases"].values():
        assert counts["delivered"] <= counts["admitted"]
        assert (counts["groups"] > 0) == (counts["delivered"] > 0)


def test_the_bound_is_that_of_all_devices_always_busy() -> None:
    settings = ("schedule.staleness=0", "algorithm.steps=12")
    found = made(make_job(*settings))
    bound = found["tokens"] / found["wall_s"] / found["bound_ratio"]
    assert bound == pytest.approx(fluid_throughput(setup_for(*settings)), rel=1e-6)


def test_no_run_passes_the_bound_however_full_its_buffer_was_when_its_steady_part_began() -> None:
    found = made(make_job("schedule.arm=train_on_rollout", "schedule.staleness=4", "schedule.consume=stream"))
    assert 0 < found["bound_ratio"] < 1


def test_a_run_that_would_take_hours_is_refused() -> None:
    with pytest.raises(JobError, match=r"algorithm.prompts_per_step: asks for 112,000,000,000 responses in all"):
        simulate(make_job("algorithm.prompts_per_step=1000000000"))


def test_an_arm_lends_in_its_own_direction_alone_and_the_switch_costs_are_those_of_its_leases() -> None:
    found = made(make_job("schedule.arm=train_on_rollout", "profile.train.tokens_per_s=1200", SHORT))
    assert found["leases"]["rollout_on_train"] == {"admitted": 0, "refused": 0, "delivered": 0, "groups": 0}
    assert found["leases"]["train_on_rollout"]["delivered"] > 0
    assert found["switch"] == {"in_s": pytest.approx(6.16), "out_s": 5.62, "grad_s": 1.21}


def test_without_a_lease_nothing_is_known_of_switches() -> None:
    found = made(make_job("schedule.arm=no_borrow", SHORT))
    assert found["switch"] == {"in_s": None, "out_s": None, "grad_s": None}
    assert {counts["refused"] for counts in found["leases"].values()} == {0}


def test_every_refusal_of_a_gate_is_counted_in_its_direction() -> None:
    setup = setup_for("schedule.arm=bidirectional_paper", SHORT)
    simulator = Simulator(setup, keep_actions=True)
    trace = simulator.run()
    said = [action.direction for _, action in trace.actions if isinstance(action, Refuse)]
    assert said
    assert trace.refused == {direction: said.count(direction) for direction in set(said)}
    job = make_job("schedule.arm=bidirectional_paper", SHORT)
    found = simulation.result(job, setup, chosen_split(job, plan_job(job)), trace, simulator.world.workload)
    assert sum(counts["refused"] for counts in found["leases"].values()) == len(said)


def test_the_same_job_gives_the_same_result_and_another_seed_another() -> None:
    assert simulate(make_job(SHORT)) == simulate(make_job(SHORT))
    assert simulate(make_job(SHORT))["tokens"] != simulate(make_job(SHORT, "seed=1"))["tokens"]


def test_all_arms_consume_the_same_tokens_at_staleness_0() -> None:
    # every step takes exactly its own groups
    on_policy = [simulate(make_job(SHORT, "schedule.staleness=0", f"schedule.arm={arm}")) for arm in ARMS]
    assert len({found["tokens"] for found in on_policy}) == 1


# -- measured speeds, recorded work -----------------------------------------------------------------------------------

BLIND = ("profile=null", SHORT)
"""The shipped job without its profile."""


def make_recorded(lengths: tuple[tuple[int, ...], ...] = ((100,) * 8, (700,) * 8)) -> Recorded:
    known = Known(profile=plan_job(make_job()).known.profile, source="run r-1")
    return Recorded(known=known, lengths=lengths)


def test_a_job_without_a_profile_goes_by_one_that_was_measured_and_says_so() -> None:
    known = Known(profile=plan_job(make_job()).known.profile, source="calibration of run c-1")
    found = simulate(make_job(*BLIND), measured=known)
    assert found == {**simulate(make_job(SHORT)), "source": "calibration of run c-1"}
    assert simulate(make_job(SHORT), measured=known)["source"] == "profile", "the job's own goes before it"
    with pytest.raises(JobError, match="profile: is needed to plan or simulate"):
        simulate(make_job(*BLIND))


def test_a_past_run_is_played_again_on_the_tokens_that_it_generated() -> None:
    found = simulate(make_job(*BLIND), like=make_recorded())
    assert (found["kind"], found["source"]) == ("simulated", "run r-1")
    # 5 steps of 64 groups, 32 of each length; 400 prompt tokens for each of 8 responses
    assert found["tokens"] == 5 * (32 * 8 * 100 + 32 * 8 * 700 + 64 * 8 * 400)
    assert simulate(make_job(*BLIND), like=make_recorded()) == found


@pytest.mark.parametrize(
    "setting", ["schedule.arm=opportunistic", "devices.partition=12:4", "schedule.staleness=0", "seed=5"]
)
def test_what_is_asked_of_a_past_run_changes_its_time_and_never_its_work(setting: str) -> None:
    before, after = (simulate(make_job(*BLIND, *more), like=make_recorded()) for more in ((), (setting,)))
    assert before["tokens"] == after["tokens"]
    assert before["wall_s"] != after["wall_s"]


def test_the_work_of_a_past_run_goes_before_the_profile_of_the_job() -> None:
    assert simulate(make_job(SHORT), like=make_recorded()) == simulate(make_job(*BLIND), like=make_recorded())


@pytest.mark.parametrize(
    ("lengths", "line"),
    [
        (((100,) * 4,), "algorithm.group_size: must be 4 to play that run again, got 8"),
        (((100,) * 8, (100,) * 7), "every recorded group must have 8 responses of at least 1 token, group 1 has"),
    ],
)
def test_recorded_work_of_another_shape_is_refused(lengths: tuple[tuple[int, ...], ...], line: str) -> None:
    with pytest.raises(JobError, match=line):
        simulate(make_job(*BLIND), like=make_recorded(lengths))


# -- no pools ---------------------------------------------------------------------------------------------------------

COLOCATED = ("schedule.arm=colocated", "devices.partition=auto", "devices.count=16", SHORT)


def test_a_run_without_pools_has_the_fields_of_any_other_and_no_partition() -> None:
    found = made(make_job(*COLOCATED))
    assert list(found) == list(made(make_job(SHORT)))
    assert (found["arm"], found["partition"], found["staleness"], found["consume"]) == (
        "colocated",
        None,
        0.0,
        "whole_batch",
    )
    assert found["lag"] == {"max": 0, "histogram": {"0": 5 * 64}, "max_share_last": 0}
    assert (found["idle"]["structural_fraction"], found["idle"]["residual_fraction"]) == (None, None)
    assert sum(found["idle"]["by_cause"].values()) == pytest.approx(found["idle"]["fraction"])
    assert found["switch"] == {"in_s": pytest.approx((7.7 + 6.16) / 2, abs=0.8), "out_s": None, "grad_s": 1.21}
    assert {counts["admitted"] for counts in found["leases"].values()} == {0}


def test_a_run_without_pools_does_the_same_work_as_one_with_pools() -> None:
    with_pools = simulate(make_job(SHORT, "schedule.arm=no_borrow", "schedule.staleness=0"))
    assert simulate(make_job(*COLOCATED))["tokens"] == with_pools["tokens"]
    played = [simulate(make_job(*BLIND, *more), like=make_recorded()) for more in ((), COLOCATED)]
    assert played[0]["tokens"] == played[1]["tokens"]


def test_devices_that_make_no_whole_replicas_are_refused_without_pools_too() -> None:
    with pytest.raises(JobError, match="18 devices are no multiple of the train replica size 4"):
        simulate(make_job(*COLOCATED, "devices.count=18"))


def test_improvements_of_an_arm_that_has_none_are_refused() -> None:
    job = make_job()
    schedule = job.schedule.model_copy(update={"arm": "opportunistic", "improvements": {"keep_lease": False}})
    with pytest.raises(JobError, match="improvements belong to the arms bidirectional"):
        simulate(job.model_copy(update={"schedule": schedule}))
