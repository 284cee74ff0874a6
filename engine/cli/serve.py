"""Engine and app together: the Procfile's processes under honcho, the address to open, and whether anybody may command.

Refuses a data folder or a port that is taken, and an operator secret or list of operators that could not work. Who may
command is decided by the page; it is told here where it listens.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
import tomllib
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path

from honcho.environ import parse_procfile
from honcho.manager import Manager

from engine.cli import client
from engine.cli.client import BadInput
from engine.config import dump_job, load_job
from engine.config.operators import (
    HOST_VARIABLE,
    OPERATORS_VARIABLE,
    SECRET_VARIABLE,
    is_loopback,
    operators_of,
    secret_of,
    secret_problem,
)
from engine.lock import is_locked
from storage.mailbox import Mailbox
from storage.paths import DATA_DIR_VARIABLE, DataDir

ROOT = Path(__file__).resolve().parents[2]
"""The checkout: Procfile, jobs and the app lie there."""

RESTART_S = 2
"""Pause before a process that died starts again, so that one that cannot live does not take a whole core."""

SECRETS_FILES = (
    Path.home() / ".streamlit" / "secrets.toml",
    ROOT / ".streamlit" / "secrets.toml",
    ROOT / "app" / ".streamlit" / "secrets.toml",
)
"""Where Streamlit looks for [auth] when it is started here: of the user, of the folder, of the main script."""

PAGE_START_S = 120.0
"""Longest wait for the page before its address is printed as unreachable."""


def serve(data: DataDir, *, demo: bool, host: str, port: int) -> int:
    """Run until Ctrl-C; returns the exit code. Raises BadInput for what is refused."""
    if problem := secret_problem(secret_of(os.environ)) or operators_of(os.environ)[1]:
        raise BadInput(problem)
    told = view_only(host, os.environ, login=login_configured(SECRETS_FILES))
    if is_locked(data):
        raise BadInput(f"{data.root}: an engine has this data folder already; use --data-dir or stop it")
    _check_port(host, port)
    if demo:
        path = ROOT / "jobs" / "demo.yaml"
        payload = {"job": dump_job(load_job(path)), "base_dir": str(path.parent), "resume": None}
        with Mailbox(data.control_db) as mailbox:
            mailbox.send("launch", payload, who=client.who(), idem_key=f"serve-{uuid.uuid4().hex}")
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
        DATA_DIR_VARIABLE: str(data.root),
        HOST_VARIABLE: host,
        "HOST": host,
        "PORT": str(port),
        "PYTHONUNBUFFERED": "1",
    }
    manager = Manager()
    for name, command in parse_procfile((ROOT / "Procfile").read_text(encoding="utf-8")).processes.items():
        manager.add_process(name, coming_back(command), env=environment_of(name, environment), cwd=str(ROOT))
    threading.Thread(target=_announce, args=(host, port, told), daemon=True).start()
    manager.loop()
    return int(manager.returncode or 0)


def environment_of(name: str, environment: Mapping[str, str]) -> dict[str, str]:
    """The operator secret is the page's alone: the engine's workers run rewards that people wrote."""
    return {key: value for key, value in environment.items() if name == "web" or key != SECRET_VARIABLE}


def login_configured(files: Iterable[Path]) -> bool:
    """Whether Streamlit will find an [auth] section. Raises BadInput for a file that it cannot read either."""
    found = False
    for path in files:
        try:
            found |= bool(tomllib.loads(path.read_text(encoding="utf-8")).get("auth"))
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as error:
            raise BadInput(f"{path}: cannot be read as TOML: {error}") from None
    return found


def view_only(host: str, environment: Mapping[str, str], *, login: bool) -> str | None:
    """What to say where nobody may command from the page, None where somebody may."""
    if secret_of(environment) is not None:
        return None
    section = "an [auth] section in app/.streamlit/secrets.toml"
    operators, _ = operators_of(environment)
    if login and not operators:
        return f"The page is view-only: people can sign in, but {OPERATORS_VARIABLE} names nobody who may command."
    if operators and not login:
        return f"The page is view-only: {OPERATORS_VARIABLE} is set, but nobody can sign in without {section}."
    if is_loopback(host) or login:
        return None
    return (
        f"The page is view-only: --host {host} lets others reach it, and nothing says who may command. Set "
        f"{SECRET_VARIABLE}, or {section}."
    )


def coming_back(command: str) -> str:
    """The shell command that runs `command` and, when it dies, runs it again: engine and page need not die together.

    An end in order (0), bad input (2) and a stop of the whole service end it.
    """
    return (
        f"stop=; trap 'stop=1' TERM INT; while :; do {command}; code=$?; "
        'if [ -n "$stop" ] || [ $code -eq 0 ] || [ $code -eq 2 ]; then exit $code; fi; '
        f'echo "ended with code $code; starting again in {RESTART_S} s"; sleep {RESTART_S}; done'
    )


def _check_port(host: str, port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise BadInput(f"--host {host} --port {port}: {error.strerror or error}; choose another --port") from None


def _announce(host: str, port: int, told: str | None) -> None:
    deadline = time.monotonic() + PAGE_START_S
    where = "127.0.0.1" if host in ("0.0.0.0", "::") else host
    while time.monotonic() < deadline:
        try:
            with socket.create_connection((where, port), timeout=1.0):
                print(f"\n    bidirl is ready: open http://{where}:{port}  (Ctrl-C stops everything)\n", flush=True)
                if told:
                    print(f"    {told}\n", flush=True)
                return
        except OSError:
            time.sleep(0.2)
    print(f"\n    The page did not answer at http://{where}:{port} within {PAGE_START_S:.0f} s.\n", flush=True)
