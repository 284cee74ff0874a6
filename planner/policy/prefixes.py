"""Unfinished groups that came back from a replica: who goes on with them."""

from __future__ import annotations

from heapq import heapify, heappop, heappush, heapreplace

from planner.policy.actions import ResumeGroups
from planner.policy.state import Returned, State


def may_continue(group: Returned, version: int) -> bool:
    """A replica with this version may take the group up; one whose prefix was lost begins anew anywhere."""
    return group.version < 0 or (group.version == version if group.on_policy else group.version <= version)


def resumes(state: State, free: dict[int, int], version: dict[int, int]) -> list[ResumeGroups]:
    """Returned groups to the replicas with the most room, each on one that may continue it. Their places are
    taken off `free` (device -> groups); `version`: device -> that of its weights."""
    given: dict[int, list[int]] = {}
    roomy = [(-room, device) for device, room in free.items() if room > 0]
    heapify(roomy)
    for group in state.returned:
        passed = []
        while roomy and not may_continue(group, version[roomy[0][1]]):
            passed.append(heappop(roomy))
        if roomy:
            room, device = roomy[0]
            free[device] -= 1
            given.setdefault(device, []).append(group.group_id)
            if room == -1:
                heappop(roomy)
            else:
                heapreplace(roomy, (room + 1, device))
        for entry in passed:
            heappush(roomy, entry)
    return [
        ResumeGroups(device=device, group_ids=tuple(ids), reason=f"{len(ids)} unfinished groups came back")
        for device, ids in given.items()
    ]
