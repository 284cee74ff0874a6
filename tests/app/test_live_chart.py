"""The chart host's Python side: files served without a network, and nothing sent when nothing is new."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

import plotly.graph_objects as go
import pytest

from app.live_chart import AssetsUnavailable, chart, kept_chart, live_chart, publish
from app.live_chart.assets import KEPT_S, SOURCES


def test_plotly_comes_from_the_installed_package_under_a_name_of_its_content(tmp_path: Path) -> None:
    found = publish(tmp_path)
    assert sorted(found) == sorted(SOURCES)
    assert (tmp_path / found["plotly"].rsplit("/", 1)[1]).read_bytes()[:60].count(b"plotly.js") == 1
    assert publish(tmp_path) == found
    assert len(list(tmp_path.iterdir())) == len(SOURCES)


def test_a_module_names_the_published_copies_of_those_that_it_imports(tmp_path: Path) -> None:
    found = {name: address.rsplit("/", 1)[1] for name, address in publish(tmp_path).items()}
    for name, file in found.items():
        asked = (
            re.findall(r'(?:from|import\() ?"\./([^"]+)"', (tmp_path / file).read_text()) if name != "plotly" else []
        )
        assert set(asked) <= set(found.values()), f"{name} asks for what is not served"
    assert f'"./{found["table"]}"' in (tmp_path / found["host"]).read_text()


def test_old_copies_are_removed_after_a_day_in_which_open_pages_may_ask_for_them(tmp_path: Path) -> None:
    old, young = tmp_path / "host-000000000000.js", tmp_path / "host-111111111111.js"
    old.write_text("old")
    young.write_text("young")
    os.utime(old, (time.time() - 2 * KEPT_S,) * 2)
    publish(tmp_path)
    assert (old.exists(), young.exists()) == (False, True)


def test_no_chart_can_send_its_data_to_the_makers_of_plotly() -> None:
    # plotly.js 4 has a button for that unless it is told not to
    for name in ("host", "picture"):
        text = SOURCES[name].read_text()
        assert "sendChartToCloud" in text
        assert 'plotlyServerURL: ""' in text


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(AssetsUnavailable, match="file"):
        publish(blocked)


def test_the_repository_holds_no_copy_of_plotly() -> None:
    ignored = (Path(__file__).parents[2] / "app" / "static" / ".gitignore").read_text().split()
    assert "*" in ignored


def test_an_unchanged_chart_is_the_same_payload(monkeypatch: pytest.MonkeyPatch) -> None:
    session: dict[str, object] = {}
    sent: list[object] = []
    monkeypatch.setattr("streamlit.session_state", session)
    monkeypatch.setattr("app.live_chart._chart_host", lambda **given: sent.append(given["data"]) or {})
    figure = go.Figure(layout={"height": 100})
    for label in ("a", "a", "b"):
        live_chart(chart(figure, label=label), key="k")
    assert sent[0] is sent[1]
    assert sent[1] is not sent[2]


@pytest.mark.parametrize(
    ("label", "note", "tag"),
    [
        ("Emulated timeline of 4 rows", "", "EMULATED"),
        ("Lost time by cause, modelled: idle 3 s", "", "EMULATED"),
        ("Expected effect", "EMULATED: times and speeds are modelled", "EMULATED"),
        ("Simulated step times", "", "SIMULATED"),
        ("Timeline of 4 rows", "a column is 1 s", ""),
    ],
)
def test_a_chart_of_what_is_no_measurement_says_so_in_its_files(label: str, note: str, tag: str) -> None:
    figure = go.Figure(layout={"height": 100})
    assert chart(figure, label=label, note=note).tag == tag
    assert chart(figure, label=label, note=note, tag="").tag == ""


def test_a_raster_without_a_table_is_refused() -> None:
    figure = go.Figure(go.Heatmap(z=[[1, 2]]), layout={"height": 100})
    with pytest.raises(ValueError, match=r"needs a table, .* got heatmap"):
        chart(figure, label="x")
    assert chart(figure, label="x", table={"columns": ["row"], "rows": [["a"]]}).table
    lines = go.Figure(go.Scatter(x=[1], y=[2], name="reward"), layout={"height": 100})
    assert chart(lines, label="x").table is None


def test_a_chart_is_sent_with_the_name_of_its_files(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[dict[str, object]] = []
    monkeypatch.setattr("streamlit.session_state", {})
    monkeypatch.setattr("app.live_chart._chart_host", lambda **given: sent.append(given["data"]) or {})
    live_chart(chart(go.Figure(layout={"height": 100}), label="a"), key="causes:demo-1")
    assert sent[0]["name"] == "causes:demo-1"


def test_a_kept_chart_is_built_again_only_for_a_new_stamp(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamlit.session_state", {})
    built: list[int] = []
    figure = go.Figure(layout={"height": 100})
    for stamp in (1, 1, 2):
        kept_chart("k", stamp, lambda: built.append(1) or chart(figure, label="x"))  # type: ignore[func-returns-value]
    assert len(built) == 2
