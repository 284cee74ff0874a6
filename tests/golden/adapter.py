"""The one place that maps the golden cases' functions to our code: `evaluate(fn, inputs)` gives `expected`'s shape.

It knows the functions that exist here; any other name is a KeyError that lists them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from planner.fitting import Sample, fit
from planner.partitions import feasible_partitions, plan
from planner.policy.gates import drain_prefix, gate_rollout_on_train, gate_train_on_rollout, split_groups
from planner.policy.lazy_pull import joint_tail_split, lazy_pull
from planner.policy.staleness import Bound, Unconsumed, choose, may_start
from planner.stage_model import StageModel
from planner.throughput import throughput


def evaluate(fn: str, inputs: dict[str, Any]) -> object:
    """The result of `fn` on `inputs`, as JSON would hold it."""
    if fn not in FUNCTIONS:
        raise KeyError(f"no golden function {fn!r} here; there are {', '.join(sorted(FUNCTIONS))}")
    return FUNCTIONS[fn](**inputs)


def _select_batch(
    done: list[int], in_flight: list[int], v: int, B: int, s: float, taken: int, taken_stale: int
) -> dict[str, int | None]:
    """`done`, `in_flight`: versions; `taken_stale` of `taken` groups have lag k + 1; `take`: an index into `done`."""
    bound = Bound(staleness=s, prompts_per_step=B)
    versions = [v - bound.k - 1] * taken_stale + [v] * (taken - taken_stale)
    finished = [
        Unconsumed(group_id=place, version=version, bound=bound, finished=True, order=place)
        for place, version in enumerate(done)
    ]
    running = [
        Unconsumed(group_id=len(done) + place, version=version, bound=bound, finished=False)
        for place, version in enumerate(in_flight)
    ]
    choice = choose(
        version=v,
        slots_left=B - taken,
        taken=[(version, bound) for version in versions],
        unconsumed=finished + running,
    )
    return {"take": choice.group_id}


def _may_start(u: int, started: int, excluded: int, B: int, s: float) -> bool:
    bound = Bound(staleness=s, prompts_per_step=B)
    return may_start(loaded_version=u, started=started, excluded=excluded, bound=bound)


def _throughput(steps: list[tuple[float, float]], s: float) -> float | None:
    return throughput(steps, s)


def _gate_r_on_t(
    Q_r: int, d_p: int, d_a: int, M_r: dict[str, float], C_in: float, C_out: float
) -> dict[str, bool | float | int]:
    verdict = gate_rollout_on_train(
        groups=Q_r, primaries=d_p, auxiliaries=d_a, model=StageModel(**M_r), in_s=C_in, out_s=C_out
    )
    return {
        "admit": verdict.admit,
        "gain": verdict.gain_s,
        "Q_a": verdict.auxiliary_groups,
        "Q_p": verdict.primary_groups,
    }


def _split_q(Q_r: int, d_p: int, d_a: int) -> list[int]:
    """The auxiliaries' share comes first."""
    primary, auxiliary = split_groups(groups=Q_r, primaries=d_p, auxiliaries=d_a)
    return [auxiliary, primary]


def _drain_prefix(U: list[float], C_in: float, M_t: dict[str, float], d_p: int) -> dict[str, object]:
    drained = drain_prefix(units=U, in_s=C_in, model=StageModel(**M_t), primaries=d_p)
    return {"n_drained": drained, "rest": U[drained:]}


def _gate_t_on_r(
    U: list[float], d_p: int, d_a: int, M_t: dict[str, float], C_in: float, C_out: float, C_grad: float
) -> dict[str, bool | float | int]:
    verdict = gate_train_on_rollout(
        units=U, primaries=d_p, auxiliaries=d_a, model=StageModel(**M_t), in_s=C_in, out_s=C_out, grad_s=C_grad
    )
    return {
        "admit": verdict.admit,
        "drained": verdict.drained,
        "T_no": verdict.alone_s,
        "T_joint": verdict.joint_s,
        "T_borrow": verdict.borrow_s,
    }


def _joint_tail_split(
    rem: list[float],
    now: float,
    other_ready: float,
    d_me: int,
    d_other: int,
    M_t: dict[str, float],
    me_primary: bool,
) -> int:
    return joint_tail_split(
        units=rem,
        now=now,
        other_ready=other_ready,
        replicas=d_me,
        other_replicas=d_other,
        model=StageModel(**M_t),
        primary=me_primary,
    )


def _lazy_pull(
    U: list[float], ready_p: float, ready_a: float, d_p: int, d_a: int, M_t: dict[str, float], s_max: int
) -> dict[str, object]:
    pulls = lazy_pull(
        units=U,
        ready_primary=ready_p,
        ready_auxiliary=ready_a,
        primaries=d_p,
        auxiliaries=d_a,
        model=StageModel(**M_t),
        max_chunk=s_max,
    )
    side = {"primary": "p", "auxiliary": "a"}
    return {
        "chunks": [
            {"side": side[chunk.side], "first": chunk.first, "n": chunk.n, "start": chunk.start, "end": chunk.end}
            for chunk in pulls.chunks
        ],
        "finish_p": pulls.finish_primary,
        "finish_a": pulls.finish_auxiliary,
        "finish": pulls.finish,
    }


def _plan(
    G: int, B_p: int, U_B: float, layouts: list[list[int]], M_r: dict[str, float], M_t: dict[str, float]
) -> dict[str, object] | None:
    best = plan(
        devices=G,
        layouts=[(rho_r, rho_t) for rho_r, rho_t in layouts],
        prompts_per_step=B_p,
        workload=U_B,
        rollout=StageModel(**M_r),
        train=StageModel(**M_t),
    ).best
    return best and {
        "g_r": best.rollout_devices,
        "g_t": best.train_devices,
        "rho_r": best.rollout_replica_size,
        "rho_t": best.train_replica_size,
        "d_r": best.rollout_replicas,
        "d_t": best.train_replicas,
        "lam_r": best.rate_rollout,
        "lam_t": best.rate_train,
    }


def _feasible_partitions(G: int, rho_r: int, rho_t: int) -> list[tuple[int, int]]:
    return feasible_partitions(G, rho_r, rho_t)


def _fit(samples: list[tuple[float, int, float]], decay: float) -> list[float]:
    measured = [Sample(workload=work, replicas=replicas, seconds=seconds) for work, replicas, seconds in samples]
    model = fit(measured, decay).model
    return [model.a, model.b]


FUNCTIONS: dict[str, Callable[..., object]] = {
    "select_batch": _select_batch,
    "may_start": _may_start,
    "throughput": _throughput,
    "gate_r_on_t": _gate_r_on_t,
    "split_q": _split_q,
    "drain_prefix": _drain_prefix,
    "gate_t_on_r": _gate_t_on_r,
    "joint_tail_split": _joint_tail_split,
    "lazy_pull": _lazy_pull,
    "plan": _plan,
    "feasible_partitions": _feasible_partitions,
    "fit": _fit,
}
