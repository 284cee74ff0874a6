"""A rollouter whose answers are bitwise the same whatever else it holds and however often a group moved.

Each group decodes in a batch of its own, so that every shape and every sum depends on the group's own history only. A
group that was taken back is replayed: all its responses are fed again from the prompt, token by token, the recorded
tokens in place of drawn ones, those that ended included until the place where they ended. What was recorded (tokens,
log-probabilities, versions) is kept. Slower than the parent: batches are small, and a replay costs as many steps as the
prefix has tokens.

No promise across weights: after a change in flight, a replay computes the prefix under the new weights, as the parent
does. At staleness 0 that does not happen. Nor across machines or numbers of threads, which change how sums are cut.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from engine.learning.decoding import DecodingBatch
from engine.learning.held_group import HeldGroup
from engine.learning.slots import Indices
from engine.learning.transformers_rollouter import TransformersRollouter


@dataclass(slots=True, kw_only=True)
class _Lane:
    """The batch of one group; all its rows stand at the same place, since the group's responses start together."""

    group: HeldGroup
    batch: DecodingBatch
    rows: Indices
    """Row of the batch -> response."""
    recorded: npt.NDArray[np.int32]
    """[responses, longest] tokens of the prefixes."""
    counts: Indices
    """[responses] tokens of each prefix."""
    complete: npt.NDArray[np.bool_]
    """[responses] whose prefix is the whole response."""
    place: int = 0
    """Tokens that every row has so far."""

    def next_recorded(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
        """For each row its next recorded token, whether it has one, and whether that one ends the response."""
        counts = self.counts[self.rows]
        ends = self.complete[self.rows] & (counts == self.place + 1)
        return self.recorded[self.rows, self.place].astype(np.int64), counts > self.place, ends


class DeterministicRollouter(TransformersRollouter):
    """See `engine.learning.rollouter.Rollouter` for the methods.

    A response that has ended holds no slot while it is replayed, so that a group needs as many slots here as there.
    """

    def _set_up(self) -> None:
        self._lanes: dict[int, _Lane] = {}
        """Group id -> its lane, in the order of joining."""

    def _join(self, group: HeldGroup) -> None:
        if not group.slots:
            return  # every response had ended: nothing is left to decode
        prefixes = group.request.partial
        recorded = np.zeros((self._group_size, self._table.longest), dtype=np.int32)
        for response, prefix in enumerate(prefixes):
            recorded[response, : len(prefix.tokens)] = prefix.tokens
        batch = DecodingBatch(self._model, self._group_size)
        batch.join(group.prompt_tokens, copies=self._group_size)
        self._lanes[group.request.group_id] = _Lane(
            group=group,
            batch=batch,
            rows=np.arange(self._group_size),
            recorded=recorded,
            counts=np.array([len(prefix.tokens) for prefix in prefixes] or [0] * self._group_size),
            complete=np.array([ended is not None for ended in group.ended]),
        )

    def _advance(self) -> None:
        for group_id, lane in list(self._lanes.items()):
            self._advance_lane(lane)
            if not len(lane.rows):
                del self._lanes[group_id]

    def _advance_lane(self, lane: _Lane) -> None:
        logits = lane.batch.forward()
        tokens, replayed, gone = lane.next_recorded()
        new = np.flatnonzero(~replayed)
        if len(new):
            slots = np.array([lane.group.slots[response] for response in lane.rows[new].tolist()])
            drawn, gone[new] = self._extend(slots, logits[torch.from_numpy(new)])
            tokens[new] = drawn.numpy()
        lane.batch.feed(torch.from_numpy(tokens))
        lane.place += 1
        if gone.any():
            lane.rows = lane.rows[lane.batch.drop(gone)]

    def _leave(self, group_ids: set[int]) -> None:
        for group_id in group_ids:
            self._lanes.pop(group_id, None)
