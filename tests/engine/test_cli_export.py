"""`bidirl runs export` and `bidirl runs import`: what they write, what they print, what they refuse."""

from __future__ import annotations

import gzip
import json
import threading
import time
import zipfile
from pathlib import Path

import pytest

from engine.cli import client
from storage.mailbox import Mailbox
from storage.paths import DataDir
from tests.app.fake_emulated import write_emulated
from tests.app.fake_run import open_writer, write_engine
from tests.engine.test_cli import Call, call, data, living_engine

__all__ = ["call", "data", "living_engine"]

RUN = "emulated_16-0001"


@pytest.fixture
def stored(data: DataDir) -> DataDir:
    now = time.time()
    writer = open_writer(data, now)
    write_engine(writer, now=now)
    write_emulated(writer, RUN, now=now - 5, state="finished", steps=3)
    writer.close()
    return data


@pytest.mark.parametrize("form", ["perfetto", "parquet", "csv", "bundle"])
def test_a_run_is_written_with_its_size_its_label_and_what_is_not_in_it(call: Call, stored: DataDir, form: str) -> None:
    called = call("runs", "export", RUN, "--format", form, "--out", "out")
    assert (called.code, called.err) == (0, "")
    assert called.out.startswith(f"{RUN} (EMULATED): out, ")
    assert "divide by time_scale 0.02" in called.out
    assert Path("out").is_dir() == (form in ("parquet", "csv"))
    if form == "perfetto":
        assert b"EMULATED" in gzip.decompress(Path("out").read_bytes())


def test_json_prints_one_document(call: Call, stored: DataDir) -> None:
    called = call("runs", "export", RUN, "--format", "csv", "--out", "out.zip", "--json")
    document = json.loads(called.out)
    assert (document["run_id"], document["format"], document["label"]) == (RUN, "csv", "EMULATED")
    assert document["bytes"] == Path("out.zip").stat().st_size
    with zipfile.ZipFile("out.zip") as archive:
        assert f"{document['rows']['spans'] + 1}" == str(len(archive.read("spans.csv").splitlines()))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("nobody", "--format", "csv", "--out", "o"), f"'nobody' is not known; the newest are: {RUN}"),
        ((RUN, "--format", "json", "--out", "o"), "--format: format must be one of perfetto, parquet, csv, bundle"),
        ((RUN, "--format", "csv", "--out", "taken"), "--out: taken exists already"),
        ((RUN, "--format", "csv", "--out", "no/o"), "no is not a folder"),
        ((RUN, "--format", "csv"), "--out"),
        ((RUN, "--out", "o"), "--format"),
    ],
)
def test_bad_input_is_one_line_and_nothing_is_written(
    call: Call, stored: DataDir, arguments: tuple[str, ...], says: str
) -> None:
    Path("taken").write_text("mine")
    before = sorted(Path().iterdir())
    called = call("runs", "export", *arguments)
    assert (called.code, called.out) == (2, "")
    assert says in called.err
    assert called.err.count("\n") == 1
    assert sorted(Path().iterdir()) == before


def test_without_any_telemetry_there_is_nothing_to_export(call: Call, data: DataDir) -> None:
    called = call("runs", "export", RUN, "--format", "csv", "--out", "o")
    assert called.code == 2
    assert "no telemetry yet" in called.err


def test_importing_needs_an_engine_and_copies_nothing_without(call: Call, stored: DataDir) -> None:
    call("runs", "export", RUN, "--format", "bundle", "--out", "b.zip")
    called = call("runs", "import", "b.zip")
    assert called.code == 2
    assert "no engine runs on" in called.err
    assert not stored.imports.exists()


@pytest.mark.parametrize(("name", "body"), [("missing.zip", None), ("text.zip", b"text"), ("empty.zip", b"")])
def test_what_is_no_bundle_is_refused_before_an_engine_is_asked(
    call: Call, living_engine: None, data: DataDir, name: str, body: bytes | None
) -> None:
    if body is not None:
        Path(name).write_bytes(body)
    called = call("runs", "import", name)
    assert called.code == 2
    assert f"BUNDLE: {name}" in called.err
    assert not data.control_db.exists()


@pytest.mark.parametrize("taken", [True, False])
def test_the_engines_answer_to_an_import_is_what_is_printed(
    call: Call, living_engine: None, stored: DataDir, taken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    call("runs", "export", RUN, "--format", "bundle", "--out", "b.zip")

    def answer() -> None:
        with Mailbox(stored.control_db) as mailbox:
            deadline = time.monotonic() + 20
            while not (found := mailbox.pending()) and time.monotonic() < deadline:
                time.sleep(0.01)
            command = found[0]
            assert command.payload["as"] == "mine"
            assert (stored.root / command.payload["path"]).read_bytes() == Path("b.zip").read_bytes()
            mailbox.accept(command.id)
            if taken:
                mailbox.apply(command.id, "Imported run mine.", result={"run_id": "mine", "imported": True})
            else:
                mailbox.reject(command.id, "b.zip: run 'mine' is here already with other content")

    engine = threading.Thread(target=answer)
    engine.start()
    called = call("runs", "import", "b.zip", "--as", "mine", "--json")
    engine.join(20)
    assert called.code == (0 if taken else 2)
    if taken:
        assert json.loads(called.out)["result"] == {"run_id": "mine", "imported": True}
    else:
        assert "bidirl: import: b.zip: run 'mine' is here already" in called.err


def test_an_engine_that_does_not_answer_is_not_waited_for_forever(
    call: Call, living_engine: None, stored: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.cli.export.IMPORT_S", 0.05)
    call("runs", "export", RUN, "--format", "bundle", "--out", "b.zip")
    called = call("runs", "import", "b.zip")
    assert called.code == 1
    assert "no answer to command 1" in called.err
    assert client.ANSWER_S == 0.05
