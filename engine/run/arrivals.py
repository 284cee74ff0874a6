"""Enters devices that come to a role: under a lease, home from one, or at home in another pool. Decides nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from engine.layout import BlockLayout
from engine.run.applier import Applier
from engine.run.book import Book, RolloutEntry, TrainEntry
from engine.run.homes import Homes
from engine.run.lending import Lending
from engine.run.profiling import Profiling
from engine.run.recorder import Recorder
from engine.run.specs import device_row
from engine.worker import messages as msg
from planner.policy.state import Estimates
from planner.policy.wording import POOLS


class Arrivals:
    """Of one run."""

    def __init__(
        self,
        *,
        book: Book,
        lending: Lending,
        homes: Homes,
        profiling: Profiling,
        recorder: Recorder,
        applier: Applier,
        estimates: Callable[[], Estimates | None],
    ) -> None:
        """`estimates`: what the policy is told now."""
        self._book = book
        self._lending = lending
        self._homes = homes
        self._profiling = profiling
        self._recorder = recorder
        self._applier = applier
        self._estimates = estimates

    def at_version(self, device: int, version: int) -> None:
        """A trainer holds this version; one that is behind is brought to the present one."""
        trainer = self._book.train.get(device) or self._book.joining.get(device)
        if trainer is not None:
            trainer.restoring = False
        if not self._book.at_version(device, version) and device in self._book.joining:
            self._applier.make_primary(device)

    def lease_ready(self, device: int, event: msg.LeaseReady) -> None:
        """The block's other role can begin."""
        if not self._lending.ready(device, event):
            return
        book, block = self._book, self._lending.entries[device].layout
        for replica in block.away:
            if block.pool == "train":
                book.rollout[replica] = RolloutEntry(replica, version=event.version, lease=event.lease)
                continue
            book.train[replica] = TrainEntry(replica, lease=event.lease)
            self.at_version(replica, event.version)
            if not book.train[replica].ready:
                self._applier.load_weights(replica, book.step.version)

    def lease_released(self, device: int, event: msg.LeaseReleased) -> None:
        """The block is home again."""
        book, block = self._book, self._lending.entries[device].layout
        lease = self._lending.released(device, event, self._estimates())
        self._profiling.released(lease)
        if block.pool == "rollout":
            for replica in block.away:
                book.train.pop(replica, None)
        self._at_home(block, event.version)

    def moved(self, device: int, event: msg.Moved, *, pids: Mapping[int, int]) -> None:
        """A block is at home in the other pool; a trainer counts once it is at the present version.

        `pids`: device -> its process.
        """
        book, block = self._book, self._homes.arrive(device, event.at)
        self._lending.arrived(device, event.at)
        self._at_home(block, event.version)
        book.rollout = dict(sorted(book.rollout.items()))
        rows = [device_row(self._homes.specs[each], pid=pids.get(each)) for each in block.devices]
        self._recorder.devices(rows)
        text = f"{'Devices' if len(block.devices) > 1 else 'Device'} {', '.join(map(str, block.devices))} "
        self._recorder.log(event.at, f"{text}came to the {POOLS[block.pool]}.", device=device)

    def _at_home(self, block: BlockLayout, version: int) -> None:
        """Its replicas of the home role hold this version."""
        for replica in block.home:
            if block.pool == "train":
                self._book.joining[replica] = TrainEntry(replica)
                self.at_version(replica, version)
            else:
                self._book.rollout[replica] = RolloutEntry(replica, version=version)

    def prepared(self, device: int, event: msg.Prepared) -> None:
        """The device has its other role in memory, and its block can be lent."""
        self._profiling.ready(event.rehearsal, self._homes.specs[device].home)
        entry = self._lending.entry_of(device)
        if entry is not None:
            entry.prepared = True
