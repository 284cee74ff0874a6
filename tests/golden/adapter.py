"""The one place that maps the golden cases' functions to our code: `evaluate(fn, inputs)` gives `expected`'s shape.

It knows the functions that exist here; any other name is a KeyError that lists them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from planner.policy.staleness import Bound, Unconsumed, choose, may_start
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


FUNCTIONS: dict[str, Callable[..., object]] = {
    "select_batch": _select_batch,
    "may_start": _may_start,
    "throughput": _throughput,
}
