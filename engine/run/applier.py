"""Carries out what the policy decided: enters it in the books and sends it to the workers. Decides nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from engine.config import Job
from engine.devices import Workers
from engine.run.book import Book
from engine.run.held import Held
from engine.run.homes import Homes
from engine.run.lending import Lending
from engine.run.publication import Publication
from engine.worker import messages as msg
from planner.policy import actions as act
from planner.policy.idle import window_over


class Applier:
    """Applies actions to one run."""

    def __init__(
        self,
        *,
        run_id: str,
        job: Job,
        book: Book,
        lending: Lending,
        homes: Homes,
        workers: Workers,
        checkpoint_folder: Callable[[int], Path],
    ) -> None:
        self._run_id = run_id
        self._job = job
        self._book = book
        self._lending = lending
        self._homes = homes
        self._workers = workers
        self._checkpoint_folder = checkpoint_folder
        self._next_chunk_id = 0
        self.held = Held()
        self.publication: Publication | None = None
        self.snapshot: msg.SnapshotHandle | None = None
        """What a trainer becomes a primary of the present version from; None until the source is ready."""
        self.reference: msg.Handle | None = None
        """Weights of the reference of the KL term, where there is one."""

    def send(self, device: int, command: msg.Command) -> None:
        self.held.send(device, command)
        self._workers.submit(self._run_id, device, command)

    def apply(self, action: act.Action, now: float) -> None:
        """Enter and send one action."""
        book, number = self._book, self._book.step.version + 1
        if (over := window_over(action)) is not None:
            self._lending.refused.discard(over)
        match action:
            case act.LoadWeights(device=device, version=version):
                self.load_weights(device, version)
                book.rollout[device].version, book.rollout[device].loading = version, True
            case act.StartGroups(device=device, count=count):
                version = self._version_of(device)
                self._touched(device, count)
                self.send(device, msg.Generate(requests=book.groups.start(device, version, book.bound, count, now)))
            case act.ResumeGroups(device=device, group_ids=group_ids):
                version = self._version_of(device)
                self._touched(device, 0)
                self.send(device, msg.Generate(requests=book.groups.resume(device, version, group_ids, now)))
            case act.TakeGroups(group_ids=group_ids):
                book.take(group_ids)
            case act.TrainChunk(device=device, group_ids=group_ids):
                groups = book.hand_chunk(device, group_ids, now)
                self.send(device, msg.TrainChunk(chunk_id=self._next_chunk_id, step=number, groups=groups))
                self._next_chunk_id += 1
            case act.Evaluate(device=device, name=name):
                book.step.evals_waiting.remove((name, device))
                book.step.evals_running += 1
                book.train[device].busy, book.train[device].evaluating = "evaluate", name
                prefix = self._job.eval.control_prefix or "" if name == "control" else ""
                parts = book.step.eval_parts[name]
                self.send(
                    device,
                    msg.Evaluate(
                        step=book.step.version,
                        name=name,
                        prefix=prefix,
                        part=parts.index(device),
                        parts=len(parts),
                    ),
                )
            case act.ShipGradient(device=device):
                book.train[device].busy = "gradient"
                self.send(device, msg.ShipGradient(step=number))
            case act.FinishStep(devices=devices):
                self._finish_step(devices, now)
            case act.Checkpoint(device=device):
                book.step.checkpoint_due, book.step.checkpoint_running = False, True
                book.train[device].busy = "checkpoint"
                version = book.step.version
                self.send(device, msg.SaveCheckpoint(folder=self._checkpoint_folder(version), step=version))
            case act.SwitchRole(device=device, role=role):
                self._switch_role(device, role)
            case act.Lend():
                self._lend(action, now)
            case act.EndLease():
                self._end_lease(action, now)
            case act.Refuse():
                self._lending.refuse(action, now)
            case act.Move():
                self._move(action, now)
            case _:
                raise AssertionError(f"no rule applies {action!r}")

    def load_weights(self, device: int, version: int) -> None:
        """Send the newest weights to a device."""
        publication = self._newest(version)
        publication.told(device)
        self.send(device, msg.LoadWeights(version=version, handle=publication.handle))

    def make_primary(self, device: int) -> None:
        """Bring a trainer to the present version: from the snapshot, or where there is none from the weights.

        One that is on its way to another version comes there first: what it reports then decides what follows, and a
        report that is older than what it was handed since cannot be.
        """
        trainer = self._book.train.get(device) or self._book.joining.get(device)
        if trainer is None or trainer.restoring:
            return
        trainer.restoring = self.snapshot is not None or self.publication is not None
        if self.snapshot is not None:
            self.send(device, msg.Restore(snapshot=self.snapshot))
        elif self.publication is not None:
            self.load_weights(device, self.publication.version)

    def join(self, device: int) -> None:
        """A worker has just been started: its trainer needs the reference, a primary the present version too."""
        book = self._book
        if self.reference is not None and self._homes.specs[device].trains:
            self.send(device, msg.SetReference(handle=self.reference))
        if device in book.train or device in book.joining:
            self.make_primary(device)

    def _newest(self, version: int) -> Publication:
        publication = self.publication
        assert publication is not None, f"version {version} was decided on before anything was published"
        assert publication.version == version, f"version {version} is not the newest, {publication.version} is"
        return publication

    def _version_of(self, device: int) -> int:
        version = self._book.rollout[device].version
        assert version is not None, f"device {device} has no weights to generate with"
        return version

    def _touched(self, device: int, started: int) -> None:
        """A rollouter gets groups."""
        if self._book.rollout[device].lease is not None:
            self._lending.pulled(device, started)

    def _finish_step(self, devices: tuple[int, ...], now: float) -> None:
        book = self._book
        step = book.step
        step.finishing, step.closing_since = devices, now
        shipped = sorted((part for part in step.parts if part.gradient is not None), key=lambda part: part.device)
        own = {part.device for part in step.parts if part.gradient is None}
        assert own <= set(devices[:1]), f"gradients of devices {sorted(own)} were not shipped"
        assert len(devices) == 1 or not own, "a step of several primaries is made of shipped gradients only"
        self._lending.step_closes(now)
        gradients = tuple(part.gradient for part in shipped if part.gradient is not None)
        for device in devices:
            book.train[device].busy, book.train[device].busy_since = "optimizer", now
            self.send(
                device,
                msg.FinishStep(step=step.version + 1, gradients=gradients, own=bool(own), publish=device == devices[0]),
            )

    def _switch_role(self, device: int, role: str) -> None:
        book = self._book
        book.role[device] = role
        if role == "rollout":
            book.rollout[device].version, book.rollout[device].loading = book.step.version, True
            assert self.publication is not None
            self.publication.told(device)
        self.send(device, msg.SwitchRole(role=role))

    # -- leases -------------------------------------------------------------------------------------------------------

    def _lend(self, action: act.Lend, now: float) -> None:
        book, block = self._book, self._lending.entries[action.block].layout
        self._lending.refused.add(action.direction)  # once per idle window, whatever the answer
        hidden = False
        for device in block.home:
            if action.direction == "train_on_rollout":
                del book.rollout[device]
            elif book.joining.pop(device, None) is None:
                # one that was still coming to the present version had nothing to do in its role
                trainer = book.train[device]
                assert trainer.busy in (None, "optimizer"), f"trainer {device} is lent while on {trainer.busy}"
                hidden |= trainer.busy == "optimizer"
                book.leave(device)
        lease = self._lending.grant(action, now, hidden=hidden)
        assert self.publication is not None, "a device was lent before anything was published"
        weights = self.publication.weights
        self.send(block.block, msg.BeginLease(lease=lease.life.lease_id, step=book.step.version + 1, weights=weights))

    def _end_lease(self, action: act.EndLease, now: float) -> None:
        book, block = self._book, self._lending.entries[action.block].layout
        before = self._lending.lease_on(action.block)
        if before is not None and before.ended_at is not None and not action.revoke:
            return  # it is on its way
        trainers = [book.train[device] for device in block.away if device in book.train]
        lease = self._lending.end(action, now, draining=any(trainer.chunks for trainer in trainers))
        for device in block.away:
            if lease.life.direction == "rollout_on_train":
                book.rollout.pop(device, None)
            elif device in book.train:
                book.leave(device)
        publication = self.publication
        home = lease.life.direction == "train_on_rollout"
        self.send(
            block.block,
            msg.EndLease(
                lease=lease.life.lease_id,
                step=book.step.version + 1,
                revoke=action.revoke,
                weights=publication.weights if home and publication is not None else None,
                snapshot=None if home else self.snapshot,
            ),
        )

    # -- another home -------------------------------------------------------------------------------------------------

    def _move(self, action: act.Move, now: float) -> None:
        book, before = self._book, self._lending.entries[action.block].layout
        for device in before.home:
            if before.pool == "rollout":
                del book.rollout[device]
            elif book.joining.pop(device, None) is None:
                book.leave(device)
        self._lending.move(self._homes.leave(action.block, action.to, now), now)
        book.trainers = self._homes.layout.trainers
        publication, trains = self.publication, action.to == "train"
        assert publication is not None, "a device was moved before anything was published"
        self.send(
            action.block,
            msg.Move(
                home=action.to,
                step=book.step.version + 1,
                weights=publication.weights,
                snapshot=self.snapshot if trains else None,
                reference=self.reference if trains else None,
            ),
        )

    def prepare_all(self) -> None:
        """Devices that lack the other role take it into memory: what is lent now was not to be lent before."""
        for spec in list(self._homes.specs):
            if self._lending.block_of(spec.device) >= 0 and not (spec.rolls and spec.trains):
                self._homes.specs[spec.device] = replace(spec, rolls=True, trains=True)
                self.send(spec.device, msg.Prepare(reference=self.reference))
