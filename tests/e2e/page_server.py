"""The app alone, as `streamlit run app/serve.py` serves it, which also writes down how long each part of a page took.

    BIDIRL_DATA_DIR=... python -m tests.e2e.page_server PORT PARTS.jsonl [REFRESH_S]

For measuring only: parts are wrapped where Streamlit is handed them, and nothing of the app is changed. REFRESH_S:
seconds between refreshes of the Live page in place of those that its number of devices asks for.
"""

from __future__ import annotations

import functools
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import streamlit as st
from streamlit.web import cli

from app import detail

ROOT = Path(__file__).resolve().parents[2]


def timed(make: Callable[..., Any], log: Any) -> Callable[..., Any]:
    """`st.fragment`, whose parts say what each run of them took: wall and CPU seconds of the script's thread."""

    def fragment(part: Callable[..., Any] | None = None, **options: Any) -> Any:
        if part is None:
            return lambda named: fragment(named, **options)

        @functools.wraps(part)
        def told(*arguments: Any, **named: Any) -> Any:
            wall, cpu = time.perf_counter(), time.thread_time()
            try:
                return part(*arguments, **named)
            finally:
                spent = {"wall_s": time.perf_counter() - wall, "cpu_s": time.thread_time() - cpu}
                log.write(json.dumps({"part": part.__name__, "at": time.time(), **spent}) + "\n")

        return make(told, **options)

    return fragment


def main(port: str, log_file: str, refresh_s: str | None = None) -> None:
    """Serve until SIGTERM."""
    log = Path(log_file).open("a", buffering=1, encoding="utf-8")  # noqa: SIM115 - as long as the process
    st.fragment = timed(st.fragment, log)
    if refresh_s is not None:
        detail.refresh_interval_s = lambda devices: float(refresh_s)
    sys.argv = ["streamlit", "run", str(ROOT / "app" / "serve.py"), "--server.port", port, "--server.headless", "true"]
    cli.main()


if __name__ == "__main__":
    main(*sys.argv[1:])
