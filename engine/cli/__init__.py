"""The command line `bidirl`. Exit codes: 0 success, 1 a run failed, 2 bad input (one line on stderr),
130 after Ctrl-C."""

from __future__ import annotations

import sys


def main() -> None:
    """Entry point. The commands are imported here, so that Ctrl-C in that second ends like one at any other time."""
    try:
        from engine.cli.main import main as commands
    except KeyboardInterrupt:
        print("bidirl: interrupted", file=sys.stderr)
        sys.exit(130)
    commands()
