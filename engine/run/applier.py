"""Carries out what the policy decided: enters it in the books and sends it to the workers. Decides nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from engine.config import Job
from engine.devices import Workers
from engine.run.book import Book
from engine.run.publication import Publication
from engine.worker import messages as msg
from planner.policy import actions as act


class Applier:
    """Applies actions to one run."""

    def __init__(
        self, *, run_id: str, job: Job, book: Book, workers: Workers, checkpoint_folder: Callable[[int], Path]
    ) -> None:
        self._run_id = run_id
        self._job = job
        self._book = book
        self._workers = workers
        self._checkpoint_folder = checkpoint_folder
        self._next_chunk_id = 0
        self.publication: Publication | None = None
        self.gradients: dict[int, msg.Handle] = {}

    def send(self, device: int, command: msg.Command) -> None:
        self._workers.submit(self._run_id, device, command)

    def apply(self, action: act.Action) -> None:
        """Enter and send one action."""
        book, number = self._book, self._book.step.version + 1
        match action:
            case act.LoadWeights(device=device, version=version):
                self.load_weights(device, version)
                book.rollout[device].version, book.rollout[device].loading = version, True
            case act.StartGroups(device=device, count=count):
                self.send(device, msg.Generate(requests=book.start_groups(device, count)))
            case act.TakeGroups(group_ids=group_ids):
                book.take(group_ids)
            case act.TrainChunk(device=device, group_ids=group_ids):
                groups = book.hand_chunk(device, group_ids)
                self.send(device, msg.TrainChunk(chunk_id=self._next_chunk_id, step=number, groups=groups))
                self._next_chunk_id += 1
            case act.Evaluate(device=device, name=name):
                book.step.evals_waiting.remove((name, device))
                book.step.evals_running += 1
                book.train[device].busy = "evaluate"
                prefix = self._job.eval.control_prefix or "" if name == "control" else ""
                self.send(device, msg.Evaluate(step=book.step.version, name=name, prefix=prefix))
            case act.ShipGradient(device=device):
                book.train[device].busy = "gradient"
                self.send(device, msg.ShipGradient(step=number))
            case act.FinishStep(devices=devices):
                gradients = tuple(self.gradients[device] for device in devices) if len(devices) > 1 else ()
                self.gradients.clear()
                for device in devices:
                    book.train[device].busy = "optimizer"
                    self.send(device, msg.FinishStep(step=number, gradients=gradients))
            case act.Checkpoint(device=device):
                book.step.checkpoint_due, book.step.checkpoint_running = False, True
                book.train[device].busy = "checkpoint"
                version = book.step.version
                self.send(device, msg.SaveCheckpoint(folder=self._checkpoint_folder(version), step=version))
            case act.SwitchRole(device=device, role=role):
                book.role[device] = role
                if role == "rollout":
                    book.rollout[device].version, book.rollout[device].loading = book.step.version, True
                    assert self.publication is not None
                    self.publication.told(device)
                self.send(device, msg.SwitchRole(role=role))
            case _:
                raise AssertionError(f"no rule applies {action!r}")

    def load_weights(self, device: int, version: int) -> None:
        """Send the newest weights to a device."""
        publication = self.publication
        assert publication is not None, f"version {version} was decided on before anything was published"
        assert publication.version == version, f"version {version} is not the newest, {publication.version} is"
        publication.told(device)
        self.send(device, msg.LoadWeights(version=version, handle=publication.handle))
