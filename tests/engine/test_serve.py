"""What `bidirl serve` makes of the Procfile's commands, what it refuses, and what it says about who may command."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

from engine.cli import serve
from engine.cli.client import BadInput
from storage.paths import DataDir


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "RESTART_S", 0)


@pytest.mark.parametrize(
    ("codes", "runs", "code"),
    [
        pytest.param([0], 1, 0, id="an end in order"),
        pytest.param([2], 1, 2, id="bad input"),
        pytest.param([137, 1, 0], 3, 0, id="two deaths, then an end in order"),
    ],
)
def test_a_process_that_dies_is_started_again(codes: list[int], runs: int, code: int, tmp_path: Path) -> None:
    count = tmp_path / "count"
    exits = " ".join(f"{number}) exit {value};;" for number, value in enumerate(codes, start=1))
    script = f"sh -c 'echo x >> {count}; case $(wc -l < {count}) in {exits} esac'"
    done = subprocess.run(["sh", "-c", serve.coming_back(script)], timeout=30, capture_output=True, text=True)
    assert (done.returncode, len(count.read_text().splitlines())) == (code, runs)
    assert done.stdout.count("starting again") == runs - 1


def test_a_stop_of_the_whole_service_waits_for_the_process_and_does_not_start_it_again(tmp_path: Path) -> None:
    ready, ended = tmp_path / "ready", tmp_path / "ended"
    script = f"sh -c 'trap \"echo x > {ended}; exit 143\" TERM; : > {ready}; while :; do sleep 0.05; done'"
    shell = subprocess.Popen(["sh", "-c", serve.coming_back(script)], start_new_session=True)
    deadline = time.monotonic() + 30
    while not ready.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    os.killpg(shell.pid, signal.SIGTERM)
    assert shell.wait(30) == 143
    assert ended.exists()


# -- who may command --------------------------------------------------------------------------------------------------

SECRET = "correct horse battery"
NAMED = {"BIDIRL_OPERATORS": "ana@x.org"}


@pytest.mark.parametrize(
    ("environment", "says"),
    [
        pytest.param({"BIDIRL_OPERATOR_SECRET": "short"}, "has 5 characters and needs at least 12", id="short"),
        pytest.param({"BIDIRL_OPERATOR_SECRET": ""}, "has 0 characters and needs at least 12", id="empty"),
        pytest.param({"BIDIRL_OPERATOR_SECRET": "eleven_char \n"}, "has 11 characters", id="a line end counts not"),
        pytest.param({"BIDIRL_OPERATORS": "ana@x.org, ben"}, "got 'ben'", id="no address"),
    ],
)
def test_what_could_make_nobody_an_operator_is_refused_before_anything_is_written(
    environment: dict[str, str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(BadInput, match=says) as refused:
        serve.serve(DataDir(tmp_path / "data"), demo=True, host="127.0.0.1", port=8501)
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("host", "environment", "login", "says"),
    [
        pytest.param("127.0.0.1", {}, False, None, id="loopback"),
        pytest.param("localhost", {}, False, None, id="localhost"),
        pytest.param("::1", {}, False, None, id="IPv6 loopback"),
        pytest.param("0.0.0.0", {}, False, "--host 0.0.0.0", id="every address"),
        pytest.param("192.0.2.7", {}, False, "--host 192.0.2.7", id="one address"),
        pytest.param("trainer.example", {}, False, "--host trainer.example", id="a name"),
        pytest.param("0.0.0.0", {"BIDIRL_OPERATOR_SECRET": SECRET}, False, None, id="with a secret"),
        pytest.param("0.0.0.0", NAMED, True, None, id="with a login"),
        pytest.param("0.0.0.0", {}, True, "names nobody who may command", id="a login without operators"),
        pytest.param("127.0.0.1", {}, True, "names nobody who may command", id="the same on the loopback"),
        pytest.param("127.0.0.1", NAMED, False, "nobody can sign in without an", id="operators without a login"),
        pytest.param("0.0.0.0", NAMED | {"BIDIRL_OPERATOR_SECRET": SECRET}, False, None, id="but with a secret"),
    ],
)
def test_a_page_that_nobody_can_command_is_said_to_be_one(
    host: str, environment: dict[str, str], login: bool, says: str | None
) -> None:
    said = serve.view_only(host, environment, login=login)
    if says is None:
        assert said is None
    else:
        assert said is not None
        assert said.startswith("The page is view-only: ")
        assert says in said


def test_it_is_said_below_the_address(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as page:
        page.bind(("127.0.0.1", 0))
        page.listen()
        port = page.getsockname()[1]
        serve._announce("0.0.0.0", port, serve.view_only("0.0.0.0", {}, login=False))
    lines = [line.strip() for line in capsys.readouterr().out.splitlines() if line.strip()]
    assert lines[0].startswith(f"bidirl is ready: open http://127.0.0.1:{port}")
    assert lines[1].startswith("The page is view-only: --host 0.0.0.0")


def test_a_login_is_found_where_streamlit_looks_for_one(tmp_path: Path) -> None:
    files = [tmp_path / "user.toml", tmp_path / "page.toml"]
    assert not serve.login_configured(files)
    files[0].write_text("[other]\nkey = 1\n")
    assert not serve.login_configured(files)
    files[1].write_text('[auth]\nredirect_uri = "http://localhost:8501/oauth2callback"\n')
    assert serve.login_configured(files)
    files[0].write_text("[auth\n")
    with pytest.raises(BadInput, match=r"user\.toml: cannot be read as TOML"):
        serve.login_configured(files)


def test_the_engine_and_its_workers_never_see_the_secret() -> None:
    environment = {"BIDIRL_OPERATOR_SECRET": SECRET, "BIDIRL_SERVE_HOST": "127.0.0.1"}
    assert serve.environment_of("web", environment) == environment
    assert serve.environment_of("engine", environment) == {"BIDIRL_SERVE_HOST": "127.0.0.1"}


def test_the_page_is_told_where_it_listens_and_only_it_gets_the_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[str, dict[str, str]] = {}

    class Processes:
        returncode = 0

        def add_process(self, name: str, command: str, env: dict[str, str], cwd: str) -> None:
            given[name] = env

        def loop(self) -> None:
            pass

    monkeypatch.setattr(serve, "Manager", Processes)
    monkeypatch.setattr(serve, "_announce", lambda host, port, told: None)
    monkeypatch.setattr(serve, "_check_port", lambda host, port: None)
    monkeypatch.setattr(serve, "login_configured", lambda files: False)
    monkeypatch.setenv("BIDIRL_OPERATOR_SECRET", SECRET)
    assert serve.serve(DataDir(tmp_path), demo=False, host="0.0.0.0", port=8501) == 0
    assert given["web"]["BIDIRL_SERVE_HOST"] == "0.0.0.0"
    assert given["web"]["BIDIRL_OPERATOR_SECRET"] == SECRET
    assert "BIDIRL_OPERATOR_SECRET" not in given["engine"]
