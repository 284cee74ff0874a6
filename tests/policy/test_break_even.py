"""The paper's break-even points: with M = b * W / d, how much work makes a lease pay, whatever the other numbers."""

from __future__ import annotations

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from planner.policy.gates import gate_rollout_on_train, gate_train_on_rollout, split_groups
from planner.stage_model import StageModel

MARGIN = 1e-9
"""Relative distance from a break-even point within which rounding may decide either way."""

replicas = st.integers(1, 16)
costs = st.floats(0, 100)
slopes = st.floats(0.01, 10)


def clearly_above(value: float, limit: float) -> bool:
    return value > limit + MARGIN * (1 + limit)


def clearly_below(value: float, limit: float) -> bool:
    return value < limit - MARGIN * (1 + limit)


@settings(max_examples=300)
@given(groups=st.integers(0, 500), primaries=replicas, auxiliaries=replicas, b=slopes, in_s=costs, out_s=costs)
def test_a_rollouters_lease_pays_above_the_costs_times_all_replicas_per_auxiliary(
    groups: int, primaries: int, auxiliaries: int, b: float, in_s: float, out_s: float
) -> None:
    model = StageModel(a=0, b=b)
    alone_s = model.seconds(groups, primaries)
    break_even_s = (in_s + out_s) * (primaries + auxiliaries) / auxiliaries
    _, auxiliary_groups = split_groups(groups=groups, primaries=primaries, auxiliaries=auxiliaries)
    verdict = gate_rollout_on_train(
        groups=groups, primaries=primaries, auxiliaries=auxiliaries, model=model, in_s=in_s, out_s=out_s
    )
    if auxiliary_groups == 0 or clearly_below(alone_s, break_even_s):
        assert not verdict.admit, verdict.reason
    elif clearly_above(alone_s, break_even_s):
        assert verdict.admit, verdict.reason


@settings(max_examples=300)
@given(
    count=st.integers(0, 64),
    size=st.floats(0.1, 10),
    primaries=replicas,
    auxiliaries=replicas,
    b=slopes,
    in_s=costs,
    out_s=costs,
    grad_s=costs,
)
def test_a_trainers_lease_pays_above_c_in_plus_the_other_costs_times_all_replicas_per_auxiliary(
    count: int, size: float, primaries: int, auxiliaries: int, b: float, in_s: float, out_s: float, grad_s: float
) -> None:
    """The primaries drain less than C_in by up to one unit, and what they leave undone the auxiliaries make up for:
    T_no - T_borrow = (W - C_in) * d_a / D - e * d_p / D - C_out - C_grad, with e below one unit's time alone."""
    model = StageModel(a=0, b=b)
    alone_s = model.seconds(count * size, primaries)
    break_even_s = in_s + (out_s + grad_s) * (primaries + auxiliaries) / auxiliaries
    unit_s = model.seconds(size, auxiliaries)  # e * d_p / d_a is at most a unit's time on the auxiliaries
    verdict = gate_train_on_rollout(
        units=[size] * count,
        primaries=primaries,
        auxiliaries=auxiliaries,
        model=model,
        in_s=in_s,
        out_s=out_s,
        grad_s=grad_s,
    )
    if clearly_below(alone_s, break_even_s):
        assert not verdict.admit, verdict.reason
    elif clearly_above(alone_s, break_even_s + unit_s):
        assert verdict.admit, verdict.reason


@given(primaries=replicas, auxiliaries=replicas, in_s=st.integers(1, 50), cost_s=st.integers(0, 50))
def test_where_units_fill_c_in_the_trainers_break_even_is_exact(
    primaries: int, auxiliaries: int, in_s: int, cost_s: int
) -> None:
    """Units of one second alone: the drained prefix takes C_in to the unit, so no tolerance of a unit is needed."""
    model = StageModel(a=0, b=1)
    break_even_s = in_s + cost_s * (primaries + auxiliaries) / auxiliaries
    for count in (int(break_even_s) - 1, int(break_even_s), int(break_even_s) + 1, int(break_even_s) + 2):
        assume(count > in_s)
        verdict = gate_train_on_rollout(
            units=[float(primaries)] * count,
            primaries=primaries,
            auxiliaries=auxiliaries,
            model=model,
            in_s=in_s,
            out_s=cost_s,
            grad_s=0,
        )
        if clearly_below(count, break_even_s):
            assert not verdict.admit, verdict.reason
        elif clearly_above(count, break_even_s):
            assert verdict.admit, verdict.reason
