"""Imports as the service carries them out: taken in, refused with a reason, and cleared after a death. No Ray."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.importing import LEFT_FOR_S, TARGET, Imports, bundle_path, check_run_id
from storage.exports.export import export
from storage.mailbox import Mailbox
from storage.paths import DataDir
from storage.reader import TelemetryReader
from storage.records import Command
from storage.writer import TelemetryWriter
from tests.app.fake_emulated import write_emulated
from tests.app.fake_run import open_writer, write_engine, write_run
from tests.engine.test_service import Served
from tests.storage.builders import make_span


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    made = Served(tmp_path / "here", monkeypatch)
    yield made
    made.mailbox.close()


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with bundles of another installation."""
    folder = tmp_path_factory.mktemp("elsewhere")
    now = time.time()
    writer = open_writer(DataDir(folder), now)
    write_engine(writer, now=now)
    write_run(writer, "real", now=now - 9, state="finished", lending=True, steps=6)
    write_run(writer, "queued", now=now - 9, state="queued", steps=1)
    write_emulated(writer, "modelled", now=now - 9, state="finished", steps=3)
    writer.close()
    with Mailbox(folder / "control.db") as mailbox:
        mailbox.add_tag("real", "good", who="ana")
    for run_id in ("real", "queued", "modelled"):
        export(DataDir(folder), run_id, "bundle", folder / f"{run_id}.zip")
    write = open_writer(DataDir(folder), now)
    write_run(write, "real", now=now - 9, state="finished", lending=True, steps=6, seed=7, spans=False, name="changed")
    write.close()
    export(DataDir(folder), "real", "bundle", folder / "changed.zip")
    return folder


def send(served: Served, bundle: Path, name: str | None = None, *, path: str | None = None) -> int:
    served.data.imports.mkdir(exist_ok=True)
    (served.data.imports / bundle.name).write_bytes(bundle.read_bytes())
    payload = {"path": path or f"imports/{bundle.name}", "as": name, "name": bundle.name}
    return served.mailbox.send("import", payload, who="test")


def serve_until(served: Served, *commands: int) -> list[Command]:
    """Passes of the service until the commands are answered."""
    deadline = time.monotonic() + 60

    def look() -> None:
        over = {"applied", "rejected"}
        if time.monotonic() > deadline or all(served.mailbox.get(command).state in over for command in commands):
            served.stop.set()
        time.sleep(0.005)

    served.workers.on_wait = look
    served.service.serve()
    return [served.mailbox.get(command) for command in commands]


def test_a_bundle_is_taken_in_and_its_file_is_removed(served: Served, bundles: Path) -> None:
    sent = [send(served, bundles / "real.zip"), send(served, bundles / "modelled.zip")]
    real, modelled = serve_until(served, *sent)
    assert real.state == modelled.state == "applied"
    assert real.result == {"run_id": "real", "imported": True}
    assert str(modelled.answer).startswith("Imported run modelled (EMULATED): ")
    assert list(served.data.imports.iterdir()) == []
    with TelemetryReader(served.data.telemetry_db) as here, TelemetryReader(bundles / "telemetry.db") as there:
        assert here.spans("real", 0, 1e12) == there.spans("real", 0, 1e12)
        assert {run.run_id for run in here.runs()} == {"real", "modelled"}
        assert all(run.imported_at is not None for run in here.runs())
    assert served.mailbox.tags("real") == ("good",)
    assert served.workers.started == []


def test_the_same_run_again_changes_nothing_and_another_one_of_its_name_is_refused(
    served: Served, bundles: Path
) -> None:
    sent = [
        send(served, bundles / "real.zip"),
        send(served, bundles / "changed.zip"),
        send(served, bundles / "changed.zip", "another"),
    ]
    (served.data.imports / "again.zip").write_bytes((bundles / "real.zip").read_bytes())
    sent.append(served.mailbox.send("import", {"path": "imports/again.zip"}, who="test"))
    first, changed, another, again = serve_until(served, *sent)
    assert first.state == "applied"
    assert changed.state == "rejected"
    assert "run 'real' is here already with other content" in str(changed.answer)
    assert "--as" in str(changed.answer)
    # its file went with the refusal of the one before it
    assert "imports/changed.zip is not there" in str(another.answer)
    assert again.state == "applied"
    assert "with the same content; nothing was changed" in str(again.answer)
    assert again.result == {"run_id": "real", "imported": False}


def test_another_name_is_given_and_checked(served: Served, bundles: Path) -> None:
    sent = [send(served, bundles / "real.zip", "../x"), send(served, bundles / "modelled.zip", "mine")]
    wrong, right = serve_until(served, *sent)
    assert "without path separators" in str(wrong.answer)
    assert right.result == {"run_id": "mine", "imported": True}
    with TelemetryReader(served.data.telemetry_db) as reader:
        assert [run.run_id for run in reader.runs()] == ["mine"]


def test_a_run_that_was_queued_elsewhere_is_never_started_here(served: Served, bundles: Path) -> None:
    (answered,) = serve_until(served, send(served, bundles / "queued.zip"))
    assert answered.state == "applied"
    with TelemetryReader(served.data.telemetry_db) as reader:
        assert [run.state for run in reader.runs()] == ["interrupted"]


def test_an_import_of_no_bundle_is_refused_and_the_next_one_goes_on(served: Served, bundles: Path) -> None:
    served.data.imports.mkdir()
    (served.data.imports / "x.zip").write_text("no zip")
    sent = [served.mailbox.send("import", {"path": "imports/x.zip"}, who="t"), send(served, bundles / "real.zip")]
    wrong, right = serve_until(served, *sent)
    assert "x.zip: it is not a bundle" in str(wrong.answer)
    assert right.state == "applied"


@pytest.mark.parametrize(
    "payload",
    [
        {},
        {"path": 3},
        {"path": ""},
        {"path": "telemetry.db"},
        {"path": "imports/../telemetry.db"},
        {"path": "/etc/passwd"},
        {"path": "imports/link"},
        {"path": "imports/a/b"},
        {"path": "imports"},
    ],
)
def test_a_path_that_is_no_file_of_the_folder_of_imports_is_refused(tmp_path: Path, payload: dict[str, object]) -> None:
    data = DataDir(tmp_path)
    data.imports.mkdir()
    data.telemetry_db.write_text("x")
    (data.imports / "a").mkdir()
    (data.imports / "a" / "b").write_text("x")
    (data.imports / "link").symlink_to(data.telemetry_db)
    with pytest.raises(ValueError, match="path must"):
        bundle_path(data, payload)


@pytest.mark.parametrize("name", ["", "..", "a/b", "a\\b", " a", "a\n", "x" * 201, None])
def test_a_name_that_no_run_can_have_is_refused(tmp_path: Path, name: object) -> None:
    with pytest.raises(ValueError, match=r"name of a run|run_id must"):
        check_run_id(DataDir(tmp_path), name)
    assert check_run_id(DataDir(tmp_path), "Läufe <b> 1") == "Läufe <b> 1"


def test_what_a_dead_engine_left_half_done_is_cleared_and_answered(served: Served, bundles: Path) -> None:
    sent = send(served, bundles / "real.zip")
    served.mailbox.accept(sent)
    work = served.data.imports / f"work-{sent}"
    work.mkdir()
    (work / TARGET).write_text("real")
    writer = TelemetryWriter(served.data.telemetry_db)
    writer.spans([make_span(n, 1.0, run_id="real") for n in range(10)])
    writer.close()
    old = served.data.imports / "forgotten.zip"
    old.write_text("x")
    os.utime(old, (time.time() - LEFT_FOR_S - 60,) * 2)
    (answered,) = serve_until(served, sent)
    assert (answered.state, answered.answer) == ("rejected", "The engine ended before this took effect.")
    assert [path.name for path in served.data.imports.iterdir()] == ["real.zip"]
    with TelemetryReader(served.data.telemetry_db) as reader:
        assert reader.count_spans("real", 0, 1e12, cap=100) == 0


def test_a_run_that_is_wholly_there_outlives_the_folder_it_came_from(tmp_path: Path) -> None:
    data = DataDir(tmp_path)
    writer = TelemetryWriter(data.telemetry_db)
    writer.run("real", created_at=time.time())
    writer.flush()
    (data.imports / "work-1").mkdir(parents=True)
    (data.imports / "work-1" / TARGET).write_text("real")
    with Mailbox(data.control_db) as mailbox:
        Imports(data, writer=writer, mailbox=mailbox).clear_leftovers()
    writer.close()
    assert list(data.imports.iterdir()) == []
    with TelemetryReader(data.telemetry_db) as reader:
        assert reader.run("real") is not None
