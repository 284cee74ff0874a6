"""Taking a run out of the page and a bundle in: what is prepared, what is refused, and who may do what."""

from __future__ import annotations

import io
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from app import export_view
from engine.config.operators import HOST_VARIABLE
from storage.exports.export import FORMATS, export
from storage.mailbox import Mailbox
from storage.paths import DataDir
from tests.app.fake_emulated import write_emulated
from tests.app.fake_run import open_writer, write_engine, write_run


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DataDir:
    monkeypatch.setenv("BIDIRL_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("BIDIRL_USER", "ana")
    now = time.time()
    writer = open_writer(DataDir(tmp_path), now)
    write_engine(writer, now=now)
    write_run(writer, "a b/$x$<b>", now=now - 60, state="finished", steps=4)
    write_emulated(writer, "modelled", now=now - 60, state="finished", steps=4)
    writer.close()
    return DataDir(tmp_path)


def script(run_id: str, window: tuple[float, float] | None) -> None:
    from app.export_view import exports, import_bundle
    from app.session import data_dir
    from storage.reader import TelemetryReader

    with TelemetryReader(data_dir().telemetry_db) as reader:
        run = reader.run(run_id)
    assert run is not None
    exports(run, window, "here")
    import_bundle("there")


def shown(run_id: str = "modelled", window: tuple[float, float] | None = None) -> AppTest:
    page = AppTest.from_function(script, args=(run_id, window), default_timeout=30).run()
    assert not page.exception
    return page


def prepared(page: AppTest, form: str) -> AppTest:
    page.selectbox(key="here_format").select(form).run()
    page.button(key="here_prepare").click().run()
    assert not page.exception
    return page


def kept(page: AppTest) -> Any:
    return page.session_state["here_prepared"]


@pytest.mark.parametrize("form", FORMATS)
def test_a_format_is_prepared_when_asked_for_and_says_its_size(folder: DataDir, form: str) -> None:
    page = shown()
    assert not page.download_button
    prepared(page, form)
    assert len(page.download_button) == 1
    report = kept(page).report
    assert page.download_button[0].label == f"Download · {export_view.size(report.size_bytes)}"
    assert report.path.name.startswith("modelled-EMULATED.")
    assert any("EMULATED" in str(caption.value) for caption in page.caption)
    with kept(page).read() as file:
        assert len(file.read()) == report.size_bytes


def test_another_format_is_not_offered_what_was_prepared_for_the_first(folder: DataDir) -> None:
    page = prepared(shown(), "csv")
    page.selectbox(key="here_format").select("bundle").run()
    assert not page.download_button
    page.selectbox(key="here_format").select("csv").run()
    assert page.download_button


def test_the_time_shown_may_be_exported_alone_but_not_in_a_bundle(folder: DataDir) -> None:
    now = time.time()
    page = shown(window=(now - 65, now - 61))
    page.toggle(key="here_window").set_value(True).run()
    prepared(page, "perfetto")
    part = kept(page).report.rows["spans"]
    page.toggle(key="here_window").set_value(False).run()
    assert not page.download_button, "the whole run was not prepared"
    page.button(key="here_prepare").click().run()
    assert 0 < part < kept(page).report.rows["spans"]
    page.selectbox(key="here_format").select("bundle").run()
    assert not page.toggle


def test_a_name_with_paths_and_markup_is_a_plain_file_name(folder: DataDir) -> None:
    page = prepared(shown("a b/$x$<b>"), "bundle")
    assert kept(page).report.path.name == "a_b__x__b_.bidirl.zip"
    assert "\\$x\\$" in str(page.markdown[0].value)


@pytest.mark.parametrize(("limit", "says"), [("MOST_SPANS", "spans are too many"), ("MOST_BYTES", "hands out at most")])
def test_what_is_too_large_is_refused_with_the_command_that_writes_it(
    folder: DataDir, limit: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export_view, limit, 10)
    page = prepared(shown(), "perfetto")
    assert not page.download_button
    text = str(page.warning[0].value)
    assert says in text
    assert "bidirl runs export 'modelled' --format perfetto --out 'modelled-EMULATED.pftrace.gz'" in text
    assert str(folder.root) in text


def test_a_run_that_was_deleted_meanwhile_is_said_and_not_an_empty_file(
    folder: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    from storage.exports.source import UnknownRun

    def gone(*arguments: Any, **options: Any) -> None:
        raise UnknownRun("run 'modelled' is not known")

    page = shown()
    monkeypatch.setattr(export_view, "export", gone)
    prepared(page, "csv")
    assert "It was not written: run 'modelled' is not known" in str(page.warning[0].value)


# -- import -----------------------------------------------------------------------------------------------------------


def upload(page: AppTest, name: str, body: bytes) -> AppTest:
    page.file_uploader(key="there_file").upload(name, body, "application/zip").run()
    page.button(key="there_send").click().run()
    assert not page.exception
    return page


def bundle(folder: DataDir) -> bytes:
    return export(folder, "modelled", "bundle", folder.root / "out.zip").path.read_bytes()


def test_an_operator_sends_a_bundle_and_reads_the_engines_answer(folder: DataDir) -> None:
    page = shown()
    page.text_input(key="there_name").input(" again ").run()
    body = bundle(folder)
    upload(page, "m.zip", body)
    with Mailbox(folder.control_db) as mailbox:
        command = mailbox.list()[0]
        assert (command.kind, command.who, command.run_id) == ("import", "ana", None)
        assert (command.payload["as"], command.payload["name"]) == ("again", "m.zip")
        assert (folder.root / command.payload["path"]).read_bytes() == body
        assert "the engine answers here (pending)" in str(page.info[0].value)
        mailbox.accept(command.id)
        mailbox.apply(command.id, "Imported run modelled.", result={"run_id": "again"})
    page.run()
    assert "Imported run modelled." in str(page.success[0].value)


def test_a_refusal_of_the_engine_is_shown_with_its_reason(folder: DataDir) -> None:
    page = upload(shown(), "m.zip", bundle(folder))
    with Mailbox(folder.control_db) as mailbox:
        mailbox.reject(mailbox.list()[0].id, "m.zip: run 'modelled' is here already")
    page.run()
    assert "Import was rejected. m.zip\\: run 'modelled' is here already" in str(page.warning[0].value)
    assert not page.success


@pytest.mark.parametrize("body", [b"", b"PK", b"no zip at all"])
def test_what_is_no_bundle_is_refused_before_anything_is_sent(folder: DataDir, body: bytes) -> None:
    page = upload(shown(), "<x>.zip", body)
    assert "not a bundle" in str(page.error[0].value)
    assert "\\<x\\>" in str(page.error[0].value)
    assert not folder.control_db.exists()
    assert not folder.imports.exists()


def test_a_zip_of_something_else_is_refused_before_anything_is_sent(folder: DataDir) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("../x", "x")
    page = upload(shown(), "x.zip", packed.getvalue())
    assert "no manifest" in str(page.error[0].value)
    assert not folder.imports.exists()


def test_a_viewer_cannot_import_and_nothing_is_written(folder: DataDir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HOST_VARIABLE, "0.0.0.0")
    page = shown()
    assert page.button(key="there_send").disabled
    assert any("view-only" in str(caption.value) for caption in page.caption)
    # exporting is looking
    assert prepared(page, "csv").download_button


def test_a_viewer_whose_page_forgot_to_close_the_button_still_writes_nothing(
    folder: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = shown()
    page.file_uploader(key="there_file").upload("m.zip", bundle(folder), "application/zip").run()
    monkeypatch.setenv(HOST_VARIABLE, "0.0.0.0")
    monkeypatch.setattr("app.session.may_command", lambda: (True, ""))
    page.button(key="there_send").click().run()
    assert "was not sent" in str(page.error[0].value)
    assert not folder.control_db.exists()
    assert not folder.imports.exists()
