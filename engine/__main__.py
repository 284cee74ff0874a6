"""`python -m engine`: the engine alone, until SIGTERM or SIGINT."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import threading

from engine.devices import Workers
from engine.lock import EngineRunning
from engine.service import Service
from storage.paths import DataDir


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m engine", description=__doc__)
    parser.add_argument("--data-dir", default=None, help="holds databases, checkpoints and logs (default: var)")
    parser.add_argument("--with-parent", action="store_true", help="end when the process that started it ends")
    options = parser.parse_args()
    data = DataDir.from_env(options.data_dir)
    data.engine_log.parent.mkdir(parents=True, exist_ok=True)
    handlers: list[logging.Handler] = [logging.StreamHandler(sys.stderr)]
    if not options.with_parent:  # a parent sends our stderr to the log itself
        handlers.append(logging.FileHandler(data.engine_log))
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", handlers=handlers)
    stop = threading.Event()

    def catch_signals() -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stop.set())

    def make_workers(cores: int) -> Workers:
        from engine.actors.cluster import RayWorkers

        workers = RayWorkers(cores=cores)
        catch_signals()  # again: Ray installs a handler of its own
        return workers

    try:
        service = Service(data, make_workers=make_workers, stop=stop, with_parent=options.with_parent)
    except EngineRunning as error:
        print(f"bidirl: {error}", file=sys.stderr)
        return 2
    catch_signals()
    service.serve()
    return 0


if __name__ == "__main__":
    code = main()
    logging.shutdown()
    # past the exit handlers: Ray's would wait for daemons that the same signal may have ended
    os._exit(code)
