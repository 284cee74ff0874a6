"""The chart host's Python side: files served without a network, and nothing sent when nothing is new."""

from __future__ import annotations

from pathlib import Path

import plotly.graph_objects as go
import pytest

from app.live_chart import AssetsUnavailable, chart, kept_chart, live_chart, publish


def test_plotly_comes_from_the_installed_package_under_a_name_of_its_content(tmp_path: Path) -> None:
    found = publish(tmp_path)
    assert sorted(found) == ["cards", "host", "plotly"]
    assert (tmp_path / found["plotly"].rsplit("/", 1)[1]).read_bytes()[:60].count(b"plotly.js") == 1
    assert publish(tmp_path) == found
    assert len(list(tmp_path.iterdir())) == 3


def test_old_copies_are_removed(tmp_path: Path) -> None:
    (tmp_path / "host-000000000000.js").write_text("old")
    publish(tmp_path)
    assert not (tmp_path / "host-000000000000.js").exists()


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


def test_a_kept_chart_is_built_again_only_for_a_new_stamp(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamlit.session_state", {})
    built: list[int] = []
    figure = go.Figure(layout={"height": 100})
    for stamp in (1, 1, 2):
        kept_chart("k", stamp, lambda: built.append(1) or chart(figure, label="x"))  # type: ignore[func-returns-value]
    assert len(built) == 2
