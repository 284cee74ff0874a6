"""The page of the report from made-up sections: its tables by hand, its places, and what it may not hide or claim."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.report import __main__ as report
from tests.report import tables, trimming
from tests.report.builders import NO_LEASES, make_comparison, make_scale, make_section
from tests.report.trimming import Document

NOTHING: dict[str, Document | None] = dict.fromkeys(report.SECTIONS)
PAGE = report.PAGE.read_text(encoding="utf-8")


def made(**sections: Document) -> dict[str, str]:
    return tables.tables(NOTHING | sections)


def cells_of(table: str, first: str) -> list[str]:
    """The cells of the row that begins with this one."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines() if line[:1] == "|"]
    return next(row for row in rows if row[0] == first)


def emulated(partition: str, by_staleness: dict[float, dict[str, float | None]], **more: Any) -> Document:
    return make_comparison("emulated_16", by_staleness, kind="emulated", partition=partition, **more)


# -- the page ---------------------------------------------------------------------------------------------------------


def test_every_table_has_its_place_on_the_page_and_every_place_its_table() -> None:
    assert tables.page(PAGE, NOTHING).count("*Not measured yet.*") > 10


def test_the_page_is_what_its_measurements_make_of_it() -> None:
    assert tables.page(PAGE, report.load(report.MEASURED)) == PAGE


def test_a_page_that_lacks_a_place_is_refused_with_its_name() -> None:
    text = re.sub(r"<!-- planner: (begin|end) -->\n", "", PAGE)
    with pytest.raises(ValueError, match="planner"):
        tables.page(text, NOTHING)


def test_the_prose_of_the_page_claims_no_figure() -> None:
    prose = re.sub(r"<!-- (\w+): begin -->.*?<!-- \1: end -->", "", PAGE, flags=re.DOTALL)
    prose = re.sub(r"`[^`]*`", "", prose).replace("2x/(1+x)", "").replace("1:1 split", "").replace("staleness 1", "")
    assert re.findall(r".*\d.*", prose) == []


def test_the_stored_measurements_name_no_place_of_a_machine() -> None:
    stored = "".join(path.read_text(encoding="utf-8") for path in report.MEASURED.glob("*.json"))
    assert re.findall(r"/(?:home|root|tmp|work|usr)/", stored) == []


def test_what_is_stored_has_few_digits_and_no_places() -> None:
    document = {"a": [1.23456789, "no file /home/me/x"], "b": {"c": (12345678.9, None)}}
    expected = {"a": [1.23457, "no file .../x"], "b": {"c": [12345700.0, None]}}
    assert trimming.stored(document, places=["/home/me"]) == expected


def test_json_has_a_line_for_each_run_and_reads_back() -> None:
    section = make_section(make_comparison("balanced", {1.0: {"no_borrow": 100.0, "no_borrow:stream": 120.0}}))
    text = tables.json_text(section)
    assert json.loads(text) == section
    assert sum('"run_id"' in line for line in text.splitlines()) == 2


def test_a_section_is_stored_and_rendered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "borrowing.md"
    page.write_text(PAGE, encoding="utf-8")
    monkeypatch.setattr(report, "PAGE", page)
    monkeypatch.setattr(report, "MEASURED", tmp_path / "measured")
    monkeypatch.setattr(report.measure, "scale", lambda data, keep: keep(make_scale()))
    assert report.main(["--only", "scale", "--data-dir", str(tmp_path / "data")]) == 0
    assert "| longest pass of the engine over 256 devices | at most 0.25 s | 0.100 s | yes |" in page.read_text()
    assert report.load(tmp_path / "measured")["scale"] == make_scale()


def test_a_section_that_fails_does_not_take_the_others_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(data: Any, keep: Any, **_: Any) -> None:
        keep(make_section(make_comparison("balanced", REAL)))
        raise RuntimeError("bidirl bench jobs/train_heavy.yaml ended with code 2")

    page = tmp_path / "borrowing.md"
    page.write_text(PAGE, encoding="utf-8")
    monkeypatch.setattr(report, "PAGE", page)
    monkeypatch.setattr(report, "MEASURED", tmp_path / "measured")
    monkeypatch.setattr(report.measure, "real", fail)
    monkeypatch.setattr(report.measure, "scale", lambda data, keep: keep(make_scale()))
    assert report.main(["--only", "real,scale", "--data-dir", str(tmp_path / "data")]) == 1
    assert "real: bidirl bench jobs/train_heavy.yaml ended with code 2" in capsys.readouterr().err
    assert "**balanced, staleness 1**" in page.read_text()
    assert "12,345" in page.read_text()


@pytest.mark.parametrize("arguments", [["--only", "all"], ["--repeats", "0"]], ids=["section", "repeats"])
def test_what_cannot_be_done_is_refused(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        report.main(arguments)
    assert caught.value.code == 2


# -- real cores -------------------------------------------------------------------------------------------------------

REAL: dict[float, dict[str, float | None]] = {
    1.0: {"no_borrow": 100.0, "no_borrow:stream": 120.0, "bidirectional": 132.0},
}


def test_a_row_has_ratios_over_the_better_baseline_and_no_borrow() -> None:
    table = made(real=make_section(make_comparison("rollout_heavy", REAL, repeats=3)))["real"]
    assert "**rollout_heavy, staleness 1**" in table
    row = cells_of(table, "bidirectional")
    # one percent more in each repeat, in all configurations alike: ratios are exact, speeds are spread
    assert row[1] == "133 (132 to 135)"
    assert row[2:5] == ["1.100 [1.100, 1.100]", "1.320 [1.320, 1.320]", "1.100 [1.100, 1.100] (no_borrow:stream)"]
    # of 6 admitted leases 5 delivered, 2 were refused, in each of two directions
    assert row[5:9] == ["25.0%", *row[6:7], "12 / 2 / 4", "2.00"]
    assert cells_of(table, "no_borrow:stream")[2] == "1"
    # 9 s of rollout for 6 s of training: x = 1.5, 2x/(1+x) = 1.2
    assert "x = 1.50, rollout the larger: lending can win at most 2x/(1+x) = 1.200" in table
    assert "Best static split: 1:1, no_borrow:stream" in table


def test_an_improvement_that_is_left_out_is_compared_with_all_of_them() -> None:
    speeds = {"no_borrow": 90.0, "no_borrow:stream": 95.0, "bidirectional": 100.0}
    speeds |= {"bidirectional:whole_batch": 80.0, "bidirectional-keep_lease": 104.0}
    table = made(improvements=make_section(make_comparison("train_heavy", {1.0: speeds}, repeats=2)))["improvements"]
    assert cells_of(table, "whole_batch")[1] == "0.800 [0.800, 0.800]"
    assert cells_of(table, "without keep_lease")[1] == "1.040 [1.040, 1.040]"
    assert "no_borrow" not in table


def test_a_run_that_does_not_count_is_told_and_its_figures_are_missing() -> None:
    speeds = {1.0: REAL[1.0] | {"bidirectional": None}}
    found = made(real=make_section(make_comparison("balanced", speeds)))
    assert "balanced: only 2 of 3 runs count." in found["real_about"]
    assert "bidirectional, s=1, repeat 1: failed: a worker" in found["real_about"]
    assert cells_of(found["real"], "bidirectional")[1:4] == ["-", "-", "-"]
    assert "| not measured |" in found["verdict"]


# -- emulated devices -------------------------------------------------------------------------------------------------

ARMS: dict[str, float | None] = {
    "no_borrow": 100.0,
    "no_borrow:stream": 80.0,
    "opportunistic": 110.0,
    "bidirectional_paper": 120.0,
    "bidirectional": 130.0,
}


def test_arms_stand_by_split_over_the_better_baseline_of_their_column() -> None:
    faster = ARMS | {"no_borrow:stream": 200.0}
    section = make_section(emulated("8:8", {0.0: ARMS}), emulated("4:12", {1.0: faster, 0.5: ARMS}), planned={})
    found = made(emulated=section)
    first, second = found["emulated"].split("\n\n")
    assert cells_of(first, "EMULATED, 4:12") == ["EMULATED, 4:12", "s=0.5", "s=1"]
    assert cells_of(first, "bidirectional")[1:] == ["1.300", "0.650"]
    assert cells_of(first, "*tokens/s of the better no_borrow*")[1:] == ["100", "200 (stream)"]
    assert cells_of(second, "opportunistic") == ["opportunistic", "1.100"]
    rows = found["emulated_summary"]
    assert "0.650 (EMULATED emulated_16 4:12, s=1)" in rows
    # (1.3 * 1.3 * 0.65) ** (1/3) and 130/120
    assert cells_of(rows, "bidirectional over the better no_borrow: geometric mean of 3 cells")[1] == "1.032"
    assert cells_of(rows, "bidirectional over bidirectional_paper: geometric mean of 3 cells")[1] == "1.083"


def test_the_published_figures_stand_beside_ours() -> None:
    found = made(emulated=make_section(emulated("4:12", {1.0: ARMS}), planned={}))["published"]
    # published 1.30 over no_borrow and 1.10 over opportunistic; ours 130/100 and 130/110
    assert cells_of(found, "1")[1:] == ["1.30", "1.20", "1.30", "+0.00", "1.10", "1.09", "1.18", "+0.08"]
    assert cells_of(found, "4")[1:] == ["1.11", "-", "-", "-", "1.11", "-", "-", "-"]


def test_the_simulator_is_compared_in_throughput_and_by_cause() -> None:
    idle = {"fraction": 0.3, "by_cause": {"staleness_cap": 0.22, "no_work": 0.04}}
    speeds: dict[str, float | None] = {"no_borrow": 100.0, "no_borrow:stream": None, "bidirectional": None}
    more = {"simulated": {"throughput_tokens_per_s": 98.0, "idle": idle}}
    found = made(emulated=make_section(emulated("8:8", {1.0: speeds}, more=more), planned={}))
    # -2%; staleness_cap 22 less 25, no_work 4 less 0 points
    assert cells_of(found["simulated"], "no_borrow")[1:] == ["1", "-2.0%", "2.0%", "+4.0 (no_work)", "4.0"]


def test_the_planner_is_held_against_the_best_measured_split() -> None:
    section = make_section(
        emulated("4:12", {1.0: ARMS}),
        emulated("8:8", {1.0: ARMS | {"no_borrow:stream": 125.0, "bidirectional": 131.0}}),
        planned={"no_borrow": "4:12", "bidirectional": "4:12"},
    )
    found = made(emulated=section)
    assert cells_of(found["planner"], "no_borrow")[1:] == ["4:12", "8:8", "0.800", "100", "125"]
    assert cells_of(found["planner"], "bidirectional")[3] == "0.992"


# -- where it did not pay ---------------------------------------------------------------------------------------------


def test_every_cell_that_lost_is_listed_with_what_won() -> None:
    lost = REAL[1.0] | {"colocated": None, "bidirectional_paper": 140.0}
    found = made(
        real=make_section(make_comparison("balanced", {1.0: lost, 0.0: REAL[1.0]})),
        emulated=make_section(emulated("8:8", {2.0: ARMS | {"opportunistic": 131.0}}), planned={}),
    )["unpaid"]
    assert found.startswith("2 of 3 cells:")
    assert cells_of(found, "balanced 1:1, s=1")[1:4] == ["0.943", "bidirectional_paper", "1.100"]
    assert cells_of(found, "EMULATED emulated_16 8:8, s=2")[1:3] == ["0.992", "opportunistic"]


@pytest.mark.parametrize(("delivered", "listed"), [(4, True), (5, False), (6, False)])
def test_cells_with_many_unused_leases_are_listed(delivered: int, listed: bool) -> None:
    leases = NO_LEASES | {"rollout_on_train": {"admitted": 6, "refused": 0, "delivered": delivered}}
    found = made(real=make_section(make_comparison("balanced", REAL, leases=leases)))["unused"]
    assert ("balanced 1:1, s=1" in found) is listed
    assert listed or found == "None of 1 cells."
