"""What becomes of a run when one of its workers dies: the table of design section 7, and a new worker in its place.

| it held                       | then                                                                        |
| ----------------------------- | --------------------------------------------------------------------------- |
| unfinished groups             | begin anew, on whoever has room                                             |
| chunks, running or waiting    | back to the queue                                                           |
| a gradient that only it had   | its groups are back in the queue                                            |
| a gradient that was shipped   | kept: the engine holds it                                                   |
| the optimizer step under way  | made again from the last snapshot, by whoever publishes then                |
| an evaluation, a checkpoint   | waits again                                                                 |
| a lease                       | over; the device comes back in its home role                                |

The new worker gets the newest weights, or as a primary the snapshot of the present version, before it counts. A device
that dies again and again with no step in between ends the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from engine.devices import Workers
from engine.run.applier import Applier
from engine.run.book import Book, RolloutEntry, TrainEntry
from engine.run.homes import Homes
from engine.run.lending import Lending
from engine.run.observer import Observer
from engine.run.recorder import Recorder
from engine.run.specs import device_name
from engine.worker import messages as msg
from planner.policy.chunks import ChunkEvent, ChunkState, Outcome, after

MOST_DEATHS = 3
"""Deaths of one device without a step in between after which the run ends: what kills it would kill it again."""


class Recovery:
    """The dead and the restarted workers of one run."""

    def __init__(
        self,
        *,
        specs: Sequence[msg.WorkerSpec],
        homes: Homes,
        book: Book,
        lending: Lending,
        applier: Applier,
        observer: Observer,
        recorder: Recorder,
        workers: Workers,
    ) -> None:
        self._specs = specs
        self._homes = homes
        self._book = book
        self._lending = lending
        self._applier = applier
        self._observer = observer
        self._recorder = recorder
        self._workers = workers
        self._deaths: dict[int, list[int]] = {}
        self._failed_starts: dict[int, int] = {}
        self.dead: set[int] = set()
        """Devices whose new worker has not its models in memory yet."""
        self.count = 0
        """Deaths so far."""

    def lose(self, device: int, why: str, now: float) -> str | None:
        """A worker is gone. Enters it and starts another; or says why the run cannot go on."""
        spec, version = self._specs[device], self._book.step.version
        name = device_name(spec)
        if spec.home is None:
            return f"The worker of {name} is gone: {why}"
        deaths = [at for at in self._deaths.get(device, []) if at == version] + [version]
        self._deaths[device] = deaths
        if len(deaths) > MOST_DEATHS:
            return f"The worker of {name} is gone for the {len(deaths)}th time within one step: {why}"
        starts = self._failed_starts.get(device, 0) + (device in self.dead)
        self._failed_starts[device] = starts
        if starts >= MOST_DEATHS:
            return f"The worker of {name} died {starts} times before it was ready: {why}"
        self.count += 1
        self.dead.add(device)
        lost = self._forget(device, now)
        text = f"The worker of {name} is gone: {why}. {lost}. Another one is started in its place."
        self._recorder.log(now, text, level="warning", device=device)
        self._recorder.idle_cause(device, now, "failure")
        self._recorder.run(deaths=self.count)
        self._observer.started.pop(device, None)
        self._observer.ready.discard(device)
        self._workers.start([replace(spec, source=False)])
        return None

    def look(self, now: float) -> None:
        """Devices whose new worker is ready are home again."""
        for device in sorted(self.dead & self._observer.ready):
            self.dead.discard(device)
            self._failed_starts.pop(device, None)
            entry = self._lending.entry_of(device)
            if entry is not None and not self.dead & set(entry.layout.devices):
                self._lending.back(device, now)
            if device in self._homes.layout.rollouters:
                self._book.rollout[device] = RolloutEntry(device)
                self._book.rollout = dict(sorted(self._book.rollout.items()))
            self._recorder.log(now, f"{device_name(self._specs[device])} works again.", device=device)

    def _forget(self, device: int, now: float) -> str:
        book = self._book
        step = book.step
        groups = book.groups.lose(device)
        book.rollout.pop(device, None)
        trainer = book.train.pop(device, None)
        book.joining.pop(device, None)
        event = ChunkEvent.AUXILIARY_DIED if trainer and trainer.lease is not None else ChunkEvent.PRIMARY_DIED
        chunks = 0
        if trainer is not None:
            for state, chunk in zip(_states(trainer), trainer.chunks, strict=True):
                assert after(state, event, held=False) is Outcome.BACK_TO_QUEUE
                book.requeue(chunk)
                chunks += 1
            if trainer.busy == "evaluate" and trainer.evaluating is not None:
                step.evals_running -= 1
                step.evals_waiting.append((trainer.evaluating, device))
            if trainer.busy == "checkpoint":
                step.checkpoint_running, step.checkpoint_due = False, True
        part = step.part_of(device)
        trained = len(part.groups) if part else 0
        if after(ChunkState.FINISHED, event, held=False) is Outcome.BACK_TO_QUEUE:
            book.forget_part(device)
        if step.finishing and step.finishing[0] == device:
            self._make_step_again()
        step.finishing = tuple(other for other in step.finishing if other != device)
        if self._applier.publication is not None:
            self._applier.publication.waiting.discard(device)
            self._observer.settle_publication()
        self._lending.die(device, now, lost_groups=trained)
        self._homes.die(device)
        self._applier.held.lose(device)
        if device in self._homes.layout.trainers:
            book.joining[device] = TrainEntry(device)
        return f"{groups} unfinished groups begin anew, {chunks} chunks and the gradient of {trained} groups are redone"

    def _make_step_again(self) -> None:
        """Nobody will publish the step: the other primaries, who may have made it, go back to its beginning."""
        book = self._book
        step = book.step
        others, step.finishing, step.closing_since = step.finishing[1:], (), None
        for device in others:
            trainer = book.train.pop(device, None)
            if trainer is None:
                continue
            trainer.busy, trainer.ready = None, False
            book.joining[device] = trainer
            self._applier.make_primary(device)
        for device, trainer in list(book.joining.items()):
            if trainer.version == step.version and not trainer.restoring:
                book.at_version(device, step.version)  # it waited for the step to be made


def _states(trainer: TrainEntry) -> list[ChunkState]:
    """The first of its chunks runs, the others wait."""
    return [ChunkState.RUNNING if place == 0 else ChunkState.QUEUED for place in range(len(trainer.chunks))]
