"""Splits times staleness: what is estimated at once, and the simulated runs that say it better. Pure.

The estimate (`planner.frontier`) knows mean stage times alone. The simulator plays the job's arm at every point, with
its borrowing, tails and versions; so many points only as somebody waits for, and steps enough for a steady part.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from app.plan_played import Figures, Todo, content
from app.plan_rows import split_of, tokens_per_group
from engine.config import Job, JobError, Partition
from engine.config.planning import STALENESS_SHOWN, Planned, frontier_of, ties_of
from engine.config.playing import Prepared, setup_of
from planner.partitions import Candidate

MOST_SPLITS = 9
"""Columns: those of sixteen devices that can lend, and a map whose numbers can be read."""

STEPS, LEAST_STEPS = 10, 4
"""Steps of a simulated run beyond those in which it fills and drains; the second where a step is large."""

MOST_SEQUENCES = 60_000
"""Responses of one simulated run: each costs some ten microseconds and there are dozens of runs."""

WORTH = 0.01
"""Gain in throughput that is worth more staleness: less is the scatter of ten steps."""

Place = tuple[int, float]
"""Rollout devices and staleness."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """The points that are shown."""

    splits: tuple[Candidate, ...]
    """Columns, fewest rollout devices first."""
    staleness: tuple[float, ...]
    """Rows, least first."""
    estimate: Mapping[Place, Figures]
    """At once, from mean stage times, without borrowing."""
    todo: Mapping[Place, Todo]
    """What is played for each point, in the order in which it is wanted."""
    why_not: str = ""
    """Why nothing is played."""

    @property
    def names(self) -> list[str]:
        """Of the columns."""
        return [split_of(each) for each in self.splits]


def grid_of(job: Job, planned: Planned) -> Grid:
    """Points around the job's own, for its arm. `planned`: the plan of the same job."""
    splits = splits_of(planned, own_split(job, planned))
    staleness = tuple(sorted({*STALENESS_SHOWN, job.schedule.staleness_resolved}))
    wanted = [(s, split) for s in _nearest_first(staleness, job.schedule.staleness_resolved) for split in splits]
    todo: dict[Place, Todo] = {}
    why_not = ""
    for s, split in wanted:
        try:
            made = prepared(job, planned, split, s)
        except JobError as error:
            why_not = "; ".join(error.problems.values())
            break
        todo[split.rollout_devices, s] = (content(made), made)
    return Grid(
        splits=splits,
        staleness=staleness,
        estimate=_estimate(job, planned, splits, staleness),
        todo={} if why_not else todo,
        why_not=why_not,
    )


def own_split(job: Job, planned: Planned) -> Candidate | None:
    """The job's partition among the feasible splits; None where it leaves that to the planner."""
    partition = job.devices.partition
    if not isinstance(partition, Partition):
        return None
    feasible = (each for each in planned.plan.candidates if each.feasible)
    return next((each for each in feasible if each.rollout_devices == partition.rollout), None)


def splits_of(planned: Planned, own: Candidate | None, most: int = MOST_SPLITS) -> tuple[Candidate, ...]:
    """The job's own split, the best ones, and others spread evenly over all that are feasible."""
    feasible = sorted((e for e in planned.plan.candidates if e.feasible), key=lambda each: each.rollout_devices)
    kept = {e.rollout_devices: e for e in (own, planned.plan.best, planned.plan.best_borrowing) if e is not None}
    places = [round(i * (len(feasible) - 1) / max(1, most - 1)) for i in range(most)] if feasible else []
    for place in places:
        if len(kept) < most:
            kept.setdefault(feasible[place].rollout_devices, feasible[place])
    return tuple(kept[count] for count in sorted(kept))


def prepared(job: Job, planned: Planned, split: Candidate, staleness: float) -> Prepared:
    """The simulated run of one point. Raises JobError where a step is too much to play while somebody waits."""
    responses = job.algorithm.prompts_per_step * job.algorithm.group_size
    around = 2 * math.ceil(max(staleness, 1.0))
    steps = min(STEPS, MOST_SEQUENCES // responses - around)
    if steps < LEAST_STEPS:
        sentence = f"a step of {responses:,} responses is too much to play at every point while somebody waits"
        raise JobError({"algorithm.prompts_per_step": sentence})
    asked = job.model_copy(
        update={
            "algorithm": job.algorithm.model_copy(update={"steps": steps + around}),
            "schedule": job.schedule.model_copy(update={"staleness": staleness}),
        }
    )
    return Prepared(known=planned.known, split=split, setup=setup_of(asked, planned.known, split))


def proposed(job: Job, planned: Planned) -> Candidate | None:
    """The split to launch while a reader has chosen none: the best for the job's arm. Where others are as good to this
    estimate, the job's own, then the one that is best without lending: nothing is moved for a tie."""
    plan = planned.plan
    best = plan.best_borrowing if planned.borrows and plan.best_borrowing is not None else plan.best
    if best is None:
        return None
    equal = (best, *ties_of(plan, best))
    return next((each for each in (own_split(job, planned), plan.best) if each in equal), best)


def best_of(found: Mapping[Place, Figures]) -> Place | None:
    """The fastest point; of equal ones that with less staleness."""
    rated = [(figures.tokens_per_s, place) for place, figures in found.items() if figures.tokens_per_s]
    return min(rated, key=lambda item: (-item[0], item[1][1], item[1][0]))[1] if rated else None


def edge_of(found: Mapping[Place, Figures]) -> list[Place]:
    """Points, by rising staleness, each faster by WORTH than all with less of it."""
    rated = [(place[1], figures.tokens_per_s, place) for place, figures in found.items() if figures.tokens_per_s]
    kept: list[tuple[float, Place]] = []
    for _, rate, place in sorted(rated, key=lambda item: (item[0], -item[1])):
        if not kept or rate > kept[-1][0] * (1 + WORTH):
            kept.append((rate, place))
    return [place for _, place in kept]


def _nearest_first(staleness: Sequence[float], own: float) -> list[float]:
    return sorted(staleness, key=lambda s: (abs(s - own), s))


def _estimate(
    job: Job, planned: Planned, splits: Sequence[Candidate], staleness: Sequence[float]
) -> dict[Place, Figures]:
    tokens = tokens_per_group(planned.known.profile, job.algorithm.group_size)
    columns = {each.rollout_devices for each in splits}
    return {
        (point.rollout_devices, point.staleness): Figures(
            tokens_per_s=point.rate * tokens, step_s=point.step_s, idle=point.idle_fraction, lag=point.mean_lag
        )
        for point in frontier_of(job, planned).points
        if point.rollout_devices in columns and point.staleness in staleness
    }
