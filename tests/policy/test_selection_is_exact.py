"""The selection against two other ways to say the same: the design's own inequalities, and a full assignment."""

from __future__ import annotations

import random
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from planner.policy.staleness import Bound, Unconsumed, choose, choose_many

STALENESSES = (0, 0.3, 0.5, 0.9, 1, 1.5, 1.75, 2, 2.3, 3, 3.5, 4)


def literal_choice(v: int, slots_left: int, slipped: int, rule: Bound, unconsumed: list[Unconsumed]) -> int | None:
    """Design section 4, choosing, word by word; all groups under one bound."""
    for group in sorted((g for g in unconsumed if g.finished), key=lambda g: (g.version, g.order)):
        lag = v - group.version
        if lag > rule.k + 1 or (lag == rule.k + 1 and slipped >= rule.F):
            continue
        limits = {v - rule.k - 1: 0} | {v - rule.k + i: i * rule.prompts_per_step + rule.F for i in range(rule.k)}
        if all(
            sum(g.version <= j for g in unconsumed) - limit <= slots_left - 1
            for j, limit in limits.items()
            if j < group.version
        ):
            return group.group_id
    return None


@settings(max_examples=2000)
@given(seed=st.integers(0, 2**32 - 1))
def test_with_one_bound_the_selection_is_the_designs_even_in_states_that_no_run_reaches(seed: int) -> None:
    rng = random.Random(seed)
    B, v = rng.randint(1, 8), rng.randint(0, 6)
    rule = Bound(staleness=rng.choice(STALENESSES), prompts_per_step=B)
    taken = rng.randint(0, B - 1)
    slipped = rng.randint(0, min(taken, rule.F))
    possible = range(max(0, v - rule.k - 1), v + 1)
    weights = [rng.random() ** 4 for _ in possible]
    drawn = rng.choices(possible, weights, k=rng.randint(0, (rule.k + 2) * B))
    share_finished = rng.choice((0.03, 0.2, 0.7))
    unconsumed = [
        Unconsumed(group_id=place, version=version, bound=rule, finished=rng.random() < share_finished, order=-place)
        for place, version in enumerate(drawn)
    ]
    versions = [v - rule.k - 1] * slipped + [v] * (taken - slipped)
    got = choose(version=v, slots_left=B - taken, taken=[(w, rule) for w in versions], unconsumed=unconsumed)
    assert got.group_id == literal_choice(v, B - taken, slipped, rule, unconsumed)


def can_all_be_placed(v: int, slots_left: int, slipped: Counter[tuple[int, int]], waiting: list[Unconsumed]) -> bool:
    """Whether every group can get a step in time: the largest flow from groups, through their late shares, to steps."""
    room: dict[tuple[object, object], int] = Counter()
    for group in waiting:
        key = (group.version, group.bound.start_allowance)
        due, B = group.version + group.bound.k, group.bound.prompts_per_step
        room["source", group] = 1
        for step in range(v, due + 1):
            room[group, step] = 1
            room[step, "sink"] = slots_left if step == v else B
        if due + 1 >= v:
            room[group, key] = 1
            room[key, due + 1] = group.bound.F - (slipped[key] if due + 1 == v else 0)
            room[due + 1, "sink"] = slots_left if due + 1 == v else B
    neighbours: dict[object, set[object]] = {}
    for a, b in list(room):
        neighbours.setdefault(a, set()).add(b)
        neighbours.setdefault(b, set()).add(a)

    def push(node: object, seen: set[object]) -> bool:
        if node == "sink":
            return True
        seen.add(node)
        for following in neighbours.get(node, ()):
            if following not in seen and room[node, following] > 0 and push(following, seen):
                room[node, following] -= 1
                room[following, node] += 1
                return True
        return False

    return all(push("source", set()) for _ in waiting)


State = tuple[int, int, list[tuple[int, Bound]], list[Unconsumed]]


def crowded_state(seed: int) -> State:
    """(version, slots left, taken, unconsumed) with one to three bounds: as many groups as can be placed, or nearly.

    Drawn from a seed, since a crowd is what makes the rules bite and hypothesis prefers short lists.
    """
    rng = random.Random(seed)
    B, v = rng.randint(1, 6), rng.randint(0, 5)
    bounds = [Bound(staleness=rng.choice(STALENESSES), prompts_per_step=B) for _ in range(rng.randint(1, 3))]
    taken: list[tuple[int, Bound]] = []
    slipped: Counter[tuple[int, int]] = Counter()
    for _ in range(rng.randint(0, B - 1)):
        version, bound = rng.randint(max(0, v - 4), v), rng.choice(bounds)
        key = (version, bound.start_allowance)
        if version + bound.k >= v or (version + bound.k + 1 == v and slipped[key] < bound.F):
            slipped[key] += version + bound.k < v
            taken.append((version, bound))
    unconsumed: list[Unconsumed] = []
    share_finished = rng.choice((0.2, 0.5, 1.0))
    orders = rng.sample(range(40), 40)
    for place in range(rng.randint(0, 40)):
        finished = rng.random() < share_finished
        version, bound = rng.randint(max(0, v - 4), v), rng.choice(bounds)
        group = Unconsumed(group_id=place, version=version, bound=bound, finished=finished, order=orders[place])
        if can_all_be_placed(v, B - len(taken), slipped, [*unconsumed, group]):
            unconsumed.append(group)
    return v, B - len(taken), taken, unconsumed


SEEDS = st.integers(0, 2**32 - 1)


@settings(max_examples=400, deadline=None)
@given(seed=SEEDS)
def test_with_any_bounds_the_first_group_that_leaves_all_others_a_place_is_taken_and_else_none(seed: int) -> None:
    v, slots_left, taken, unconsumed = crowded_state(seed)
    slipped = Counter((version, bound.start_allowance) for version, bound in taken if version + bound.k < v)
    expected = None
    for group in sorted((g for g in unconsumed if g.finished), key=lambda g: (g.version, g.order)):
        key, due = (group.version, group.bound.start_allowance), group.version + group.bound.k
        late = due < v
        if late and (due + 1 < v or slipped[key] >= group.bound.F):
            continue
        after = slipped + Counter({key: 1} if late else {})
        if can_all_be_placed(v, slots_left - 1, after, [g for g in unconsumed if g is not group]):
            expected = group.group_id
            break
    choice = choose(version=v, slots_left=slots_left, taken=taken, unconsumed=unconsumed)
    assert choice.group_id == expected
    if unconsumed and all(group.finished for group in unconsumed):
        assert expected is not None, "with nothing in flight there is always one to take"


@settings(max_examples=100, deadline=None)
@given(seed=SEEDS, limit=st.none() | st.integers(1, 3))
def test_selecting_many_is_selecting_one_after_the_other(seed: int, limit: int | None) -> None:
    v, slots_left, taken, unconsumed = crowded_state(seed)
    by_id = {group.group_id: group for group in unconsumed}
    one_by_one: list[int] = []
    while slots_left > len(one_by_one) and (limit is None or len(one_by_one) < limit):
        choice = choose(
            version=v,
            slots_left=slots_left - len(one_by_one),
            taken=taken + [(by_id[i].version, by_id[i].bound) for i in one_by_one],
            unconsumed=[group for group in unconsumed if group.group_id not in one_by_one],
        )
        if choice.group_id is None:
            break
        one_by_one.append(choice.group_id)
    many = choose_many(version=v, slots_left=slots_left, taken=taken, unconsumed=unconsumed, limit=limit)
    assert list(many.group_ids) == one_by_one
