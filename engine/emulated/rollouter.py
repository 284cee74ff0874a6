"""An emulated replica in the rollouter role: the simulator's continuous batching under the engine's commands.

Holding more sequences than slots, continuing a strictly on-policy group under other weights, or generating without any,
is an AssertionError here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from engine.emulated.bench import Bench
from engine.emulated.groups import GrowingGroup
from engine.learning.sequences import GroupRequest
from engine.worker import messages as msg
from planner.simulator.replicas import Rollouter

NO_WEIGHTS = -1
"""Version of a rollouter that was never told to load any."""


class EmulatedRollouter:
    """Primary, or auxiliary under a lease."""

    def __init__(
        self,
        bench: Bench,
        *,
        first: int,
        lease: int | None = None,
        version: int = NO_WEIGHTS,
        work_begins: Callable[[], None] = lambda: None,
    ) -> None:
        """`first`: the replica's first device. `work_begins` is told of all work that is handed to it."""
        physics = bench.physics
        speed, copies = physics.profile.rollout, physics.layout.copies
        self.first = first
        self.devices = physics.layout.replica("rollout", first)
        self.stamp = 0
        self._bench = bench
        self._copies = copies
        self._work_begins = work_begins
        self._groups: dict[int, GrowingGroup] = {}
        # so many replicas side by side are one with as many times the speed, as in `Fleet.add_rollouter`; what only the
        # simulated policy looks at stays empty
        self._replica = Rollouter(
            device=first,
            devices=len(self.devices),
            block=-1,
            lease=lease,
            version=version,
            rate=copies * physics.speeds.rate(first, version),
            half=copies * speed.half_batch,
            resume_tokens=speed.resume_tokens,
            start_tokens=speed.start_tokens,
            slots=copies * speed.slots,
            group_size=physics.group_size,
            in_flight_updates=physics.in_flight_updates,
            residual=(0.0,),
            residual_step=0.0,
            now=bench.timeline.now,
        )
        self._progress = 0.0
        """Tokens by which a sequence that was always there would have grown."""
        self._since = bench.timeline.now
        self._steps = self._seconds = 0.0
        """Of the stretch under way; seconds are modelled."""
        self._sequences = self._starts = self._resumes = 0

    @property
    def version(self) -> int:
        """Of its weights."""
        return self._replica.version

    @property
    def active(self) -> int:
        """Sequences that hold a slot."""
        return self._replica.active

    def add(self, requests: Sequence[GroupRequest]) -> None:
        """Take groups, from their start or from their prefixes."""
        bench, replica = self._bench, self._replica
        physics = bench.physics
        assert self.version > NO_WEIGHTS, f"rollouter {self.first} was asked to generate without weights"
        self._work_begins()
        self._grow()
        for request in requests:
            assert request.group_id not in self._groups, f"rollouter {self.first} holds group {request.group_id}"
            group = GrowingGroup(
                request,
                physics.lengths(request.epoch, request.position),
                prompts_per_step=physics.prompts_per_step,
                now=bench.timeline.unix(),
            )
            self._begin(group)
        slots, active = replica.slots, replica.active
        assert active <= slots, f"rollouter {self.first} was handed {active} sequences for its {slots} slots"
        bench.devices[self.first].added += len(requests)
        self._show()
        self._announce()

    def _begin(self, group: GrowingGroup) -> None:
        speed, versions = self._bench.physics.profile.rollout, group.versions
        if group.left:
            assert max(versions) <= self.version, f"group {group.group_id} has tokens of newer weights: {versions}"
            assert group.request.bound > 0 or versions == {self.version}, (
                f"group {group.group_id} of bound 0 goes on under version {self.version}, it has {versions}"
            )
            self._resumes += len(group.left)
            group.base = self._progress + speed.resume_tokens - group.exact
        else:
            self._starts += len(group.responses)
            group.base = self._progress + speed.start_tokens
        self._replica.begin(group)
        self._groups[group.group_id] = group

    def load(self, version: int) -> None:
        """Become this version; groups go on under it."""
        bench, replica = self._bench, self._replica
        self._grow()
        self._count()
        for group in self._groups.values():
            assert group.request.bound > 0, f"group {group.group_id} of bound 0 got new weights in flight"
            assert bench.physics.in_flight_updates, f"group {group.group_id} was to end under its own weights"
        replica.version = version
        replica.rate = self._copies * bench.physics.speeds.rate(self.first, version)
        bench.emit(self.first, msg.WeightsLoaded(version=version, seconds=0.0, at=bench.timeline.unix()))
        if self.active:
            self._show()
            self._announce()

    def abort(self) -> None:
        """All groups go back with their prefixes."""
        self._grow()
        self._report()
        groups = self._replica.give_back(tuple(self._groups))
        back = tuple(self._groups[group.group_id].returned() for group in groups)
        self._groups.clear()
        self._bench.timeline.cancel(self)
        self._bench.show(self.devices, "idle")
        self._bench.emit(self.first, msg.GroupsAborted(groups=back))

    def stop(self) -> None:
        """Its process ends, whatever it holds."""
        self._bench.timeline.cancel(self)

    def due(self) -> None:
        """Sequences end, and the groups of which they are the last ones."""
        bench, replica = self._bench, self._replica
        room = replica.room
        self._grow()
        for ended in replica.ended():
            group = self._groups.pop(ended.group_id)
            self._sequences += group.grow(self._progress, self.version, 0)
            sealed = group.sealed(bench.timeline.unix(), round(bench.physics.profile.prompt_tokens))
            bench.emit(self.first, msg.GroupScored(group=sealed))
        if replica.room != room:
            bench.news.add(self.first)
        if not self.active or bench.timeline.real(self._seconds) >= msg.UNIT_S:
            self._report()
        if self.active:
            self._announce()
        else:
            bench.urgent = True  # nothing more will join these
            bench.show(self.devices, "idle")

    # -- inside -------------------------------------------------------------------------------------------------------

    def _announce(self) -> None:
        self._bench.timeline.at(self, self._replica.next_end())

    def _show(self) -> None:
        role = "primary" if self._replica.lease is None else "auxiliary"
        self._bench.show(self.devices, "rollout", role=role, version=self.version)

    def _grow(self) -> None:
        """Everything that was generated until now."""
        now = self._bench.timeline.now
        if self.active:
            self._seconds += now - self._since
        steps = self._replica.advance(now)
        self._progress += steps
        self._steps += steps
        self._since = now

    def _count(self) -> None:
        """Tokens of the groups that it holds, with the version that it has had until now."""
        unfinished = self._replica.unfinished
        for group in self._groups.values():
            self._sequences += group.grow(self._progress, self.version, unfinished[group.group_id])

    def _report(self) -> None:
        """Hand on the timing of what was generated since the last report."""
        self._count()
        steps = int(self._steps)
        if steps and self._sequences:
            unit = msg.DecodeUnit(
                steps=steps,
                sequences=self._sequences,
                starts=self._starts,
                resumes=self._resumes,
                seconds=self._bench.timeline.real(self._seconds),
                lease=self._replica.lease,
            )
            self._bench.timed(self.first, unit)
            self._steps -= steps
            self._seconds = 0.0
            self._sequences = self._starts = self._resumes = 0
