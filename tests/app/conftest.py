"""Pages under AppTest have no server: they are told that they listen on the loopback, where nobody has to sign in."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from app.sign_in import by_address
from engine.config.operators import HOST_VARIABLE, OPERATORS_VARIABLE, SECRET_VARIABLE
from storage.paths import DataDir
from tests.app.fake_run import open_writer, write_engine, write_run

SECRET = "correct horse battery"


@pytest.fixture(autouse=True)
def _whoever_sits_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HOST_VARIABLE, "127.0.0.1")
    for name in (SECRET_VARIABLE, OPERATORS_VARIABLE):
        monkeypatch.delenv(name, raising=False)
    by_address.clear()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DataDir:
    """A data folder with one run that is over; modules that need another one have their own."""
    monkeypatch.setenv("BIDIRL_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("BIDIRL_USER", "ana")
    now = time.time()
    writer = open_writer(DataDir(tmp_path), now)
    write_engine(writer, now=now + 600)
    write_run(writer, "old-1", now=now - 900, state="stopped", steps=4)
    writer.close()
    return DataDir(tmp_path)


@pytest.fixture
def secret(monkeypatch: pytest.MonkeyPatch) -> str:
    """The operator secret is set."""
    monkeypatch.setenv(SECRET_VARIABLE, SECRET)
    return SECRET
