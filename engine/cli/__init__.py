"""The command line `bidirl`. Exit codes: 0 success, 1 a run failed, 2 bad input (one line on stderr)."""

from engine.cli.main import main

__all__ = ["main"]
