"""What the Plan page computes: sources of stage times, rows, points, playing with a budget, replays and their band."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app import plan_grid, plan_played, plan_replay, plan_rows, plan_state, plan_times, plan_whatif_rows
from app.apart import Busy, Tell
from app.figures.plan import Mark, points_map, splits
from app.figures.plan_replays import Replayed, replays
from app.markup import literal
from app.plan_played import Figures, Memory
from app.plan_replay import AS_IS, Alternative, NotReplayable
from app.plan_view import split_points
from engine import profiles, results
from engine.config import Job, dump_job, load_job, parse_job, settings_of
from engine.config.calibrations import Calibration
from engine.config.planning import Known, Planned, plan_job
from engine.config.playing import Prepared, prepare
from engine.config.profile import from_profile
from engine.simulation import simulate
from storage.paths import DataDir
from storage.reader import TelemetryReader
from storage.records import GroupRow
from tests.app.fake_emulated import write_emulated
from tests.app.fake_run import NOW, open_writer, write_engine, write_run
from tests.planner.profiles import BASE

JOB_FILE = Path(__file__).parents[2] / "jobs" / "emulated_16.yaml"
SMALL = ("algorithm.prompts_per_step=8", "algorithm.group_size=2", "algorithm.steps=4")
RUN = "emulated_16-0001"


def make_job(*settings: str) -> Job:
    return load_job(JOB_FILE, list(settings))


def make_plan(*settings: str) -> tuple[Job, Planned]:
    job = make_job(*settings)
    return job, plan_job(job)


# -- stage times ------------------------------------------------------------------------------------------------------


def test_the_nearest_source_comes_first_and_another_runs_only_when_it_is_asked_for(tmp_path: Path) -> None:
    job, data = make_job(), DataDir(tmp_path)
    profile = from_profile(BASE).model_dump(mode="json")
    runs = [_run(data, "own", profile=profile), _run(data, "other", profile=profile), _run(data, "bare")]
    profiles.store(data, job, Calibration(profile=from_profile(BASE), run_id="c-1", at="then", model_error={}))
    found = plan_times.sources(job, data, runs, own="own")
    assert [times.key for times in found] == ["run:own", "job", "calibration", "run:other"]
    assert plan_times.chosen(found, None) == found[0]
    assert plan_times.chosen(found, "run:other") == found[3]
    bare = job.model_copy(update={"profile": None, "seed": 1})
    data = DataDir(tmp_path / "elsewhere")
    others = plan_times.sources(bare, data, runs, own="bare")
    assert [times.key for times in others] == ["run:own", "run:other"]
    assert plan_times.chosen(others, None) is None, "nobody said that this job is like those runs"


def test_a_source_that_cannot_be_used_is_there_with_its_reason(tmp_path: Path) -> None:
    job, data = make_job(), DataDir(tmp_path)
    path = profiles.store(data, job, Calibration(profile=from_profile(BASE), run_id="c-1", at="then", model_error={}))
    path.write_text("nonsense: [")
    bad = from_profile(BASE).model_dump(mode="json") | {"noise": 7}
    found = {times.key: times for times in plan_times.sources(job, data, [_run(data, "bad", profile=bad)], own=None)}
    assert "is no calibration" in found["calibration"].problem
    assert "noise" in found["run:bad"].problem
    assert found["run:bad"].known is found["calibration"].known is None


def test_another_source_puts_the_jobs_own_profile_aside() -> None:
    job = make_job()
    slow = replace(BASE, train=replace(BASE.train, tokens_per_s=BASE.train.tokens_per_s / 2))
    times = plan_times.Times(key="run:r", label="", known=Known(profile=slow, source="run r"))
    assert plan_job(plan_times.planned_by(job, times), measured=times.known).known.source == "run r"
    own = plan_times.Times(key="job", label="", known=times.known)
    assert plan_job(plan_times.planned_by(job, own), measured=times.known).known.source == "profile"


def _run(data: DataDir, run_id: str, **fields: Any) -> Any:
    data.root.mkdir(parents=True, exist_ok=True)
    writer = open_writer(data, NOW)
    write_run(writer, run_id, steps=1, spans=False, **fields)
    writer.close()
    with TelemetryReader(data.telemetry_db) as reader:
        run = reader.run(run_id)
    assert run is not None
    return run


# -- rows and figures of the splits -----------------------------------------------------------------------------------


def test_every_split_is_a_row_with_its_figures_or_its_reason() -> None:
    job, planned = make_plan()
    rows = plan_rows.rows(planned, plan_rows.shown(planned).all, job.algorithm.group_size)
    assert len(rows) == 15
    best = planned.plan.best
    assert best is not None
    assert best.rate is not None
    assert best.idle_fraction is not None
    mean = 8 * (400 + plan_rows.mean_response_tokens(planned.known.profile.response_tokens))
    assert rows[0]["rollout:train"] == "8:8"
    assert rows[0]["tokens/s"] == pytest.approx(best.rate * mean)
    assert rows[0]["idle"] == pytest.approx(best.idle_fraction * 100)
    assert "best" in rows[0]["verdict"]
    assert all((row["tokens/s"] is None) == row["verdict"].startswith("no: ") for row in rows)
    assert sum(plan_rows.BEST_BORROWING in row["verdict"] for row in rows) == 1


def test_of_hundreds_of_splits_the_best_are_shown_and_the_rest_counted() -> None:
    _, planned = make_plan("devices.count=1024", "devices.partition=auto", "devices.train_replica_size=1")
    shown = plan_rows.shown(planned)
    assert planned.plan.best_borrowing in shown.feasible
    assert len(shown.feasible) + shown.more_feasible == 1023
    assert len(split_points(make_job("devices.train_replica_size=1"), planned)) <= 400 + 2


def test_the_chart_of_splits_has_both_pools_the_slower_one_and_a_star_on_the_best() -> None:
    job, planned = make_plan("devices.partition=auto", "devices.count=16")
    points = split_points(job, planned)
    spec = json.loads(splits(points).to_json())
    by_name = {trace["name"]: trace for trace in spec["data"]}
    alone = by_name["without borrowing"]["y"]
    both = zip(by_name["RollPool alone"]["y"], by_name["TrainPool alone"]["y"], strict=True)
    assert alone == [min(pair) for pair in both]
    assert len(by_name["best"]["x"]) in (1, 2)
    assert "predicted" in by_name["structural idle"]["hovertemplate"]


def test_without_borrowing_there_is_no_line_of_it() -> None:
    job, planned = make_plan("schedule.arm=no_borrow")
    spec = json.loads(splits(split_points(job, planned)).to_json())
    assert "with borrowing" not in [trace["name"] for trace in spec["data"]]


# -- points of split and staleness ------------------------------------------------------------------------------------


def test_the_jobs_own_point_is_among_those_shown_and_is_played_first() -> None:
    job, planned = make_plan("schedule.staleness=0.3", "devices.partition=4:12")
    grid = plan_grid.grid_of(job, planned)
    assert 0.3 in grid.staleness
    assert grid.names == ["4:12", "8:8", "12:4"]
    assert set(grid.todo) == set(grid.estimate) == {(g, s) for g in (4, 8, 12) for s in grid.staleness}
    assert {place[1] for place in list(grid.todo)[:3]} == {0.3}


def test_of_many_splits_the_best_and_an_even_spread_are_shown() -> None:
    job, planned = make_plan("devices.count=256", "devices.partition=auto")
    chosen = plan_grid.splits_of(planned, None)
    assert len(chosen) == plan_grid.MOST_SPLITS
    assert planned.plan.best in chosen
    assert planned.plan.best_borrowing in chosen
    assert [each.rollout_devices for each in chosen] == sorted(each.rollout_devices for each in chosen)
    assert chosen[0].rollout_devices < 64
    assert chosen[-1].rollout_devices > 192
    assert plan_grid.own_split(job, planned) is None


def test_steps_too_large_to_wait_for_are_refused_with_the_reason() -> None:
    job, planned = make_plan("algorithm.prompts_per_step=4000", "algorithm.group_size=8")
    grid = plan_grid.grid_of(job, planned)
    assert not grid.todo
    assert "32,000 responses" in grid.why_not
    assert grid.estimate, "the estimate costs nothing"


@settings(deadline=None)
@given(st.dictionaries(st.tuples(st.integers(1, 5), st.sampled_from([0.0, 0.5, 1.0, 2.0])), st.floats(1, 1e5)))
def test_every_point_that_is_worth_its_staleness_beats_all_with_less(rates: dict[tuple[int, float], float]) -> None:
    found = {place: Figures(tokens_per_s=rate) for place, rate in rates.items()}
    edge = plan_grid.edge_of(found)
    assert [place[1] for place in edge] == sorted({place[1] for place in edge}), "one a staleness, rising"
    for place in edge:
        assert all(rates[place] >= rate for other, rate in rates.items() if other[1] <= place[1])
    best = plan_grid.best_of(found)
    assert (best is None) == (not rates)
    if best is not None:
        assert rates[best] == max(rates.values())


def test_the_map_leaves_blank_what_is_not_known_and_says_what_its_numbers_are() -> None:
    figure = points_map(
        [[None, 5100.0]], ["4:12", "8:8"], [1.0], measure="tokens/s", marks=[Mark(column=1, row=0, kind="chosen")],
        source="simulated",
    )  # fmt: skip
    spec = json.loads(figure.to_json())
    assert spec["data"][0]["z"] == [[None, 5100.0]]
    assert spec["data"][0]["text"] == [["", "5,100"]]
    assert "simulated" in spec["data"][0]["hovertemplate"]
    assert (spec["data"][1]["x"], spec["data"][1]["y"]) == ([1], [0])


# -- playing ----------------------------------------------------------------------------------------------------------


def todo(*stalenesses: float) -> dict[float, plan_played.Todo]:
    found = {}
    for s in stalenesses:
        made = prepare(make_job(*SMALL, f"schedule.staleness={s:g}"))
        found[s] = (plan_played.content(made), made)
    return found


class Ticks:
    """A clock that runs on by a step with every look at it."""

    def __init__(self, step_s: float) -> None:
        self.step_s, self.at = step_s, 0.0

    def __call__(self) -> float:
        self.at += self.step_s
        return self.at


def test_what_is_played_is_what_the_command_line_simulates() -> None:
    job = make_job(*SMALL)
    said, memory = simulate(job), Memory()
    wanted = todo(1.0)
    assert plan_played.play_some(wanted, clock=Ticks(0), tell=lambda *_: None, memory=memory)
    found = plan_played.known_of(wanted, memory=memory)[1.0]
    assert found.tokens_per_s == said["throughput_tokens_per_s"]
    assert found.idle == said["idle"]["fraction"]
    assert (found.structural, found.residual) == (
        said["idle"]["structural_fraction"],
        said["idle"]["residual_fraction"],
    )
    groups = {int(lag): count for lag, count in said["lag"]["histogram"].items()}
    assert found.lag == pytest.approx(sum(lag * n for lag, n in groups.items()) / sum(groups.values()))


def test_a_slice_ends_in_time_tells_every_step_and_nothing_is_played_twice() -> None:
    wanted, memory, told = todo(0, 1, 2), Memory(), []
    for known in (1, 2, 3):
        done = plan_played.play_some(
            wanted, clock=Ticks(0.01), tell=lambda *said: told.append(said), memory=memory, slice_s=0
        )
        assert len(plan_played.known_of(wanted, memory=memory)) == known
        assert done == (known == 3)
    assert told == [(s, place, (i + 1) / 4) for place, s in enumerate((0, 1, 2)) for i in range(4)]
    plan_played.play_some(wanted, clock=Ticks(0.01), tell=lambda *_: pytest.fail("played again"), memory=memory)


def test_a_run_that_takes_too_long_is_given_up_with_the_reason_and_the_others_go_on() -> None:
    wanted, memory = todo(0, 1), Memory()
    impatient = partial(plan_played.play_apart, longest_s=0.0)
    assert plan_played.play_some(wanted, clock=Ticks(0), tell=lambda *_: None, memory=memory, player=impatient)
    found = plan_played.known_of(wanted, memory=memory)
    assert all(each.tokens_per_s is None and "more than 0 s, which is" in each.why_not for each in found.values())
    assert len(found) == 2


def test_nothing_is_played_and_nothing_given_up_while_another_readers_run_is_played() -> None:
    def busy(made: Prepared, tell: Tell) -> Figures:
        raise Busy("another")

    wanted, memory = todo(0), Memory()
    assert not plan_played.play_some(wanted, clock=Ticks(0), tell=lambda *_: None, memory=memory, player=busy)
    assert plan_played.known_of(wanted, memory=memory) == {}


def test_memory_forgets_the_oldest() -> None:
    memory = Memory(2)
    for name in "abc":
        memory.put(name, Figures())
    assert [name for name in "abc" if memory.get(name)] == ["b", "c"]


def test_other_work_or_another_seed_is_another_content() -> None:
    contents = {
        plan_played.content(prepare(make_job(*SMALL, *more)))
        for more in ((), ("seed=1",), ("schedule.staleness=2",), ("profile.noise=0.1",), ("devices.partition=4:12",))
    }
    assert len(contents) == 5
    assert plan_played.content(prepare(make_job(*SMALL))) in contents


# -- replays ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def data(tmp_path: Path) -> DataDir:
    """A run of eight small steps that measured itself and kept its groups."""
    data = DataDir(tmp_path)
    writer = open_writer(data, NOW)
    write_engine(writer)
    job = make_job(*SMALL[:2], "algorithm.steps=8", "devices.partition=8:8")
    profile = None if job.profile is None else job.profile.model_dump(mode="json")
    write_emulated(writer, RUN, steps=8, state="finished", profile=profile, job=dump_job(job), config_version=0)
    write_emulated(writer, "short", steps=2, state="finished", profile=profile, job=dump_job(job))
    write_emulated(writer, "empty", steps=8, state="finished", profile=profile, job=dump_job(job))
    write_emulated(writer, "bare", steps=8, state="finished", job=dump_job(job))
    for run in (RUN, "short"):
        writer.groups([_group(run, i) for i in range(64)])
    writer.close()
    return data


def _group(run_id: str, number: int) -> GroupRow:
    responses: list[dict[str, Any]] = [
        {"text": "", "reward": None, "tokens": 300 + 90 * (number % 7) + i, "versions": []} for i in range(2)
    ]
    return GroupRow(
        run_id=run_id, group_id=number, epoch=0, item=number, state="consumed", version=0, bound=1.0,
        started_at=NOW, finished_at=NOW, prompt="", responses=responses,
    )  # fmt: skip


def read(data: DataDir, run_id: str = RUN) -> plan_replay.Past:
    with TelemetryReader(data.telemetry_db) as reader:
        run = reader.run(run_id)
        assert run is not None
        return plan_replay.read(reader, run)


def test_the_measured_row_is_what_the_result_of_the_run_says(data: DataDir) -> None:
    past = read(data)
    with TelemetryReader(data.telemetry_db) as reader:
        said = results.build(reader, past.run, now=NOW)
    assert past.measured.tokens_per_s == pytest.approx(said["throughput_tokens_per_s"])
    assert past.measured.idle == pytest.approx(said["idle"]["fraction"], abs=2e-3)
    assert past.measured.structural == pytest.approx(said["idle"]["structural_fraction"], abs=2e-3)
    assert past.measured.residual == pytest.approx(said["idle"]["residual_fraction"], abs=2e-3)


def test_a_replay_is_what_simulate_like_says_with_the_same_settings(data: DataDir) -> None:
    past = read(data)
    other = Alternative(arm="no_borrow", partition="12:4", staleness=2.0)
    wanted, refused = plan_replay.todo_of(past, [other])
    assert (list(wanted), refused) == ([AS_IS, other.label], {})
    memory = Memory()
    plan_played.play_some(wanted, clock=Ticks(0), tell=lambda *_: None, memory=memory)
    found = plan_played.known_of(wanted, memory=memory)
    for name, each in ((AS_IS, None), (other.label, other)):
        job = plan_replay.job_of_run(past.run, plan_replay.settings_of(past, each))
        said = simulate(job, like=past.recorded)
        assert found[name].tokens_per_s == said["throughput_tokens_per_s"]
        assert found[name].idle == said["idle"]["fraction"]
    assert "--set schedule.staleness=2" in plan_replay.command(past, other)
    assert plan_replay.command(past, None) == f"bidirl simulate --like {RUN} --set algorithm.steps=8"


def test_the_band_is_the_measured_rate_times_the_ratio_as_wide_as_the_model_is_off(data: DataDir) -> None:
    past = replace(read(data), measured=Figures(tokens_per_s=1000.0))
    known = {AS_IS: Figures(tokens_per_s=1100.0), "x": Figures(tokens_per_s=2200.0)}
    assert plan_replay.error_of(past, known) == pytest.approx(0.1)
    band = plan_replay.expected(past, known, "x")
    assert band is not None
    # 1000 * 2200 / 1100 = 2000, times and over 1.1
    assert (band.low, band.middle, band.high) == pytest.approx((2000 / 1.1, 2000, 2200))
    assert plan_replay.expected(past, {"x": Figures(tokens_per_s=1.0)}, "x") is None
    assert plan_replay.expected(past, known, "not played") is None


@settings(deadline=None)
@given(st.floats(1, 1e6), st.floats(1, 1e6), st.floats(1, 1e6))
def test_the_band_holds_its_middle_and_is_as_wide_whichever_way_the_model_is_off(a: float, b: float, c: float) -> None:
    past = plan_replay.Past.__new__(plan_replay.Past)
    object.__setattr__(past, "measured", Figures(tokens_per_s=a))
    band = plan_replay.expected(past, {AS_IS: Figures(tokens_per_s=b), "x": Figures(tokens_per_s=c)}, "x")
    assert band is not None
    assert band.low <= band.middle <= band.high
    assert band.high / band.middle == pytest.approx(band.middle / band.low)
    assert band.high / band.middle == pytest.approx(max(a / b, b / a))
    assert math.isfinite(band.high)


@pytest.mark.parametrize(
    ("run_id", "reason"),
    [
        ("short", "2 steps were made; 5 are needed"),
        ("empty", "has no recorded groups"),
        ("bare", "has not measured a whole profile"),
    ],
)
def test_a_run_that_cannot_be_replayed_is_refused_with_the_reason(data: DataDir, run_id: str, reason: str) -> None:
    with pytest.raises(NotReplayable, match=reason):
        read(data, run_id)


def test_every_combination_is_replayed_once_without_the_runs_own_and_without_pools_where_there_are_none() -> None:
    own = Alternative(arm="bidirectional", partition="8:8", staleness=1.0)
    found = plan_replay.alternatives(own, ["bidirectional", "colocated"], ["8:8", "4:12"], [1.0, 2.0])
    assert own not in found
    assert len(found) == len(set(found)) == 4
    assert [each for each in found if each.arm == "colocated"] == [
        Alternative(arm="colocated", partition=None, staleness=0.0)
    ]
    assert plan_replay.alternatives(own, [], [], []) == []


def test_what_cannot_be_is_a_row_with_its_reason_and_a_dash(data: DataDir) -> None:
    past = read(data)
    other = Alternative(arm="bidirectional", partition="6:10", staleness=1.0)
    wanted, refused = plan_replay.todo_of(past, [other])
    assert list(wanted) == [AS_IS]
    row = plan_whatif_rows.rows(past, [other], {}, refused)[-1]
    assert "not a multiple of the trainer replica size 4" in row["why not"]
    assert (row["tokens/s"], row["expected tokens/s"]) == (None, "–")


def test_a_run_that_was_steered_says_so(data: DataDir) -> None:
    past = read(data)
    assert not any("were changed" in note for note in plan_whatif_rows.notes(past, {}))
    steered = replace(past, run=replace(past.run, config_version=2))
    assert any("were changed" in note for note in plan_whatif_rows.notes(steered, {}))


def test_what_operators_changed_is_what_is_planned_and_replayed(data: DataDir) -> None:
    run = read(data).run
    began = settings_of(parse_job(run.job))
    asked = {"staleness": 0.5, "partition": "12:4", "lend_cap": None, "rollout_on_train": False}
    steered = replace(run, partition="12:4", settings={**began, **asked})
    for job in (parse_job(plan_state.governed(steered)), plan_replay.job_of_run(steered)):
        assert settings_of(job) == {**began, **asked}
    assert plan_replay.own_of(steered) == Alternative(arm="bidirectional", partition="12:4", staleness=0.5)
    assert plan_state.governed(run) == run.job
    # what is asked for goes before what governed
    other = plan_replay.job_of_run(steered, ["schedule.staleness=2", "schedule.arm=colocated"])
    assert (other.schedule.arm, other.partition) == ("colocated", None)


def test_another_arm_that_makes_trainers_take_a_whole_batch_says_so(data: DataDir) -> None:
    past = read(data)
    others = [Alternative(arm=arm, partition="8:8", staleness=1.0) for arm in ("no_borrow", "bidirectional")]
    told = [note for note in plan_whatif_rows.notes(past, {}, others) if "consume" in note]
    sentence = "With no_borrow consume goes from stream to whole_batch with the arm: schedule.consume is not set."
    assert told == [literal(sentence)]


@pytest.mark.parametrize("text", ["nan", "-1", "4.5", "many", "inf"])
def test_a_staleness_that_is_none_is_named(text: str) -> None:
    assert plan_whatif_rows.staleness_of(["1", text], 4.0) == (
        [],
        f"a staleness is a number from 0 to 4, got {text!r}",
    )


def test_the_chart_of_replays_marks_what_was_measured_apart_from_what_was_simulated() -> None:
    rows = [
        Replayed(name="measured", tokens_per_s=5000, measured=True, residual=0.1),
        Replayed(name="x" * 120, tokens_per_s=5100, structural=0.02, residual=0.05),
    ]
    spec = json.loads(replays(rows, unit=", modelled", hover="<br>EMULATED").to_json())
    by_name = {trace["name"]: trace for trace in spec["data"]}
    assert by_name["measured"]["x"] == [5000]
    assert by_name["SIMULATED"]["x"] == [5100]
    assert "EMULATED" in by_name["measured"]["hovertemplate"]
    assert len(spec["layout"]["yaxis"]["ticktext"][1]) == 40


def test_the_partitions_to_try_are_whole_replicas_and_the_runs_own(data: DataDir) -> None:
    past = read(data)
    assert plan_whatif_rows.partitions_of(past.run, past.job) == ["4:12", "8:8", "12:4"]
    assert parse_job(past.run.job).device_count == 16
