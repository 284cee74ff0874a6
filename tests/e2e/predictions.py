"""Ten changes of a run on sixteen emulated devices: what was predicted before each one, and what it then did.

python -m tests.e2e.predictions
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from engine.cli.review import review
from engine.config import load_job
from engine.config.whatif import changes_of, step_times
from planner.effects import effect, windows
from storage.mailbox import Mailbox
from tests.e2e.service import ROOT, EngineProcess, wait_for

CHANGES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("partition", {"partition": "12:4"}),
    ("policy", {"arm": "no_borrow"}),
    ("partition", {"partition": "8:8"}),
    ("policy", {"arm": "bidirectional"}),
    ("staleness", {"staleness": 0.5}),
    ("partition", {"partition": "4:12"}),
    ("staleness", {"staleness": 2.0}),
    ("policy", {"train_on_rollout": False}),
    ("policy", {"train_on_rollout": True, "rollout_on_train": False}),
    ("policy", {"arm": "bidirectional_paper", "rollout_on_train": True}),
)

STEPS_BETWEEN = 13
"""Steps from one change to the next: a transition and ten to compare."""

WITHIN = 0.10


def main() -> None:
    """See the file's docstring."""
    job = load_job(
        ROOT / "jobs" / "emulated_16.yaml", ["devices.partition=8:8", "algorithm.steps=1000", "devices.time_scale=0.02"]
    )
    predicted: list[float | None] = []
    with tempfile.TemporaryDirectory() as folder:
        engine = EngineProcess(Path(folder) / "var")
        try:
            run_id = engine.launch(job)
            reached = 12
            for kind, payload in CHANGES:
                wait_for(
                    f"step {reached}", lambda least=reached: (engine.run(run_id).steps or 0) >= least, seconds=300.0
                )
                found = review(engine.data, run_id, kind, payload)
                ratio = found.prediction.ratio
                predicted.append(None if ratio is None else ratio.middle)
                answer = engine.answer(engine.send(kind, payload, run_id), "applied", "rejected")
                assert answer.state == "applied", answer.answer
                reached = (answer.effective_step or 0) + STEPS_BETWEEN
                said = "no prediction" if ratio is None else f"{ratio.middle:.3f} [{ratio.low:.3f}, {ratio.high:.3f}]"
                error = found.prediction.model_error
                print(f"{kind} {payload}: {found.prediction.why_not or said}, model error {error}", flush=True)
            wait_for("the last steps", lambda: (engine.run(run_id).steps or 0) >= reached, seconds=300.0)
            engine.answer(engine.send("stop", {}, run_id), "applied")
            with engine.reader() as reader:
                steps = step_times(reader.steps(run_id))
            with Mailbox(engine.data.control_db) as mailbox:
                changes = changes_of(mailbox.list(run_id, limit=1000))
        finally:
            engine.stop()
    good = 0
    for place, ((kind, payload), ratio) in enumerate(zip(CHANGES, predicted, strict=True)):
        found = windows(steps, changes, place)
        measured = effect(found)
        if measured is None or ratio is None:
            print(f"{kind} {payload}: {found.why_not or 'no prediction'}")
            continue
        off = ratio / measured.ratio - 1
        good += abs(off) <= WITHIN
        print(
            f"{kind} {payload}: predicted {ratio:.3f}, measured {measured.ratio:.3f} "
            f"[{measured.low:.3f}, {measured.high:.3f}] over {measured.steps} steps a side, off {off:+.1%}"
        )
    print(f"{good} of {len(CHANGES)} within {WITHIN:.0%}")


if __name__ == "__main__":
    main()
