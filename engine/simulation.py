"""From a job to its simulated run: the same policy code on a virtual clock. Pure; nothing is started or stored.

What `bidirl simulate` prints is made here, with the fields of a run's result (contract). What is played, and what is
refused, is said by `engine.config.playing`.
"""

from __future__ import annotations

from statistics import median
from typing import Any

from engine.config import Job
from engine.config.planning import Known
from engine.config.playing import Recorded, idle_of, prepare, share
from planner import work
from planner.partitions import Candidate
from planner.policy.bound import Bound
from planner.policy.leases import DIRECTIONS
from planner.simulator.bounds import work_device_s
from planner.simulator.colocated import simulator_of
from planner.simulator.setup import Setup
from planner.simulator.trace import Trace
from planner.simulator.workload import Workload


def simulate(
    job: Job, *, source: str = "job", measured: Known | None = None, like: Recorded | None = None
) -> dict[str, Any]:
    """Play the job's run to its end; its result.

    `measured`: what to go by where the job has no profile. `like`: a real run to go by instead of either, its groups
    as long as they were. Raises JobError for what cannot be simulated, RuntimeError when the run makes no way.
    """
    made = prepare(job, source=source, measured=measured, like=like)
    setup = made.setup
    simulator = simulator_of(setup)
    return {
        **result(job, setup, made.split, simulator.run(), simulator.world.workload),
        "model_error": model_error(made.known),
        "source": made.known.source,
    }


def result(job: Job, setup: Setup, split: Candidate | None, trace: Trace, workload: Workload) -> dict[str, Any]:
    """The fields of a result. Nothing is learned or measured here, so rewards, ledger and parameters are null.

    Device time counts from the run's first moment to its last step. `run_id` is null: no run is stored.
    """
    tokens = sum(step.tokens for step in trace.steps)
    return {
        "run_id": None,
        "name": job.name,
        "kind": "simulated",
        "state": "finished",
        "error": None,
        "arm": job.schedule.arm,
        "consume": job.schedule.consume_resolved,
        "staleness": setup.staleness,
        "partition": {"rollout": split.rollout_devices, "train": split.train_devices} if split else None,
        "seed": setup.seed,
        "steps": len(trace.steps),
        "start_step": 0,
        "parent_run_id": None,
        "comparison": None,
        "wall_s": trace.wall_s,
        "warm_up_s": None,
        "tokens": tokens,
        "throughput_tokens_per_s": trace.throughput,
        "step_s": [step.ended_at - step.began_at for step in trace.steps],
        "reward": {"first": None, "last": None, "per_step": []},
        "eval": [],
        "eval_control": [],
        "lag": _lag(trace, setup),
        "excluded": {},
        "idle": idle_of(trace, split),
        "ledger": dict.fromkeys(
            ("ok", "problems", "max_gap_fraction", "cpu_over_busy", "cpu_over_idle", "other_cpu_over_wall"), None
        ),
        "leases": {direction: _leases(trace, direction) for direction in DIRECTIONS},
        "switch": _switch(trace, setup),
        "publish_s": None,
        "engine": None,
        "work": work.work(_busy_s(trace, "rollout"), _busy_s(trace, "train"), tokens),
        "bound_ratio": _bound_ratio(trace, setup, workload),
        "utilisation": share(trace, _busy_s(trace, "rollout") + _busy_s(trace, "train")),
        "model_error": model_error(None),
        "deaths": len(setup.failures),
        "params_sha256": None,
        "time_scale": None,
    }


def model_error(known: Known | None) -> dict[str, dict[str, float | None]]:
    """How far the models were off where the speeds were measured; null where they were given."""
    errors = known.model_error if known is not None and known.model_error is not None else {}
    return {
        stage: {name: (errors.get(stage) or {}).get(name) for name in ("median", "p90")}
        for stage in ("rollout", "train")
    }


def _lag(trace: Trace, setup: Setup) -> dict[str, Any]:
    last = Bound(staleness=setup.staleness, prompts_per_step=setup.prompts_per_step).k + 1
    return {
        "max": max(trace.lags, default=None),
        "histogram": {str(lag): groups for lag, groups in sorted(trace.lags.items())},
        "max_share_last": max((step.lags.get(last, 0) / setup.prompts_per_step for step in trace.steps), default=None),
    }


def _busy_s(trace: Trace, stage: str) -> float:
    """Device-seconds of a stage, in either role."""
    return sum(s for (kind, _), s in trace.account.busy.items() if kind == stage)


def _leases(trace: Trace, direction: str) -> dict[str, float]:
    """Leases granted, gates that said no, leases that delivered something, and how many groups' worth of work."""
    leases = [lease for lease in trace.leases if lease.direction == direction]
    return {
        "admitted": len(leases),
        "refused": trace.refused[direction],
        "delivered": sum(lease.groups > 0 for lease in leases),
        "groups": sum(lease.groups for lease in leases),
    }


def _switch(trace: Trace, setup: Setup) -> dict[str, float | None]:
    """Medians over the run's leases: what they took to prepare, and what the profile charges for going home.

    Without pools, over all changes of role, which have no way home; every step merges.
    """
    if setup.colocated:
        merged = setup.devices > setup.train_replica_size
        return {
            "in_s": median(trace.switch_s) if trace.switch_s else None,
            "out_s": None,
            "grad_s": setup.profile.train_on_rollout.grad_s if merged else None,
        }
    costs = {"rollout_on_train": setup.profile.rollout_on_train, "train_on_rollout": setup.profile.train_on_rollout}
    ins = [lease.working_at - lease.granted_at for lease in trace.leases if lease.working_at is not None]
    outs = [costs[lease.direction].out_s for lease in trace.leases if lease.released_at is not None]
    merged = any(lease.groups and lease.direction == "train_on_rollout" for lease in trace.leases)
    return {
        "in_s": median(ins) if ins else None,
        "out_s": median(outs) if outs else None,
        "grad_s": setup.profile.train_on_rollout.grad_s if merged else None,
    }


def _bound_ratio(trace: Trace, setup: Setup, workload: Workload) -> float | None:
    """The least time of all devices at their most efficient work over the time that the run took.

    Over the whole run: its steady part begins with a buffer that was filled before it, and may beat the bound.
    """
    if trace.throughput is None:
        return None
    places = tuple(place for step in trace.steps for place in step.places)
    return work_device_s(setup, workload, places) / setup.devices / trace.wall_s
