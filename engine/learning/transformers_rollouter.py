"""A rollouter over any causal language model of transformers, on the CPU in float32.

A step is one token for every active sequence. Groups join the running batch whole, so that all first tokens of a group
carry one version; a finished response leaves the batch at once and frees its slot. Weights may change between two
tokens: what was computed under the old ones stays in the cache, and every token remembers its version.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence

import numpy as np
import numpy.typing as npt
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from engine.config import SamplingConfig
from engine.learning import sampling
from engine.learning.answering import answer
from engine.learning.decoding import DecodingBatch
from engine.learning.held_group import HeldGroup
from engine.learning.prompts import decode_response, encode_prompt, end_tokens
from engine.learning.randomness import EVALUATION_EPOCH, uniforms
from engine.learning.sequences import FinishedGroup, GroupRequest, Partial, PartialGroup, Tokens
from engine.learning.slots import Indices, SlotTable
from engine.learning.weights import Vector, load_flat, nbytes_of


class TransformersRollouter:
    """See `engine.learning.rollouter.Rollouter` for the methods."""

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        *,
        prompt_of: Callable[[int], str],
        seed: int,
        group_size: int,
        sampling_config: SamplingConfig,
        slots: int,
        version: int = 0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`prompt_of` turns an item's index into its question; `clock` gives unix seconds. The model becomes ours."""
        if slots < group_size:
            raise ValueError(f"{slots} slots cannot hold one group of {group_size} responses")
        self._model = model.eval()
        self._tokenizer = tokenizer
        self._prompt_of = prompt_of
        self._seed = seed
        self._group_size = group_size
        self._sampling = sampling_config
        self._end_tokens = end_tokens(model, tokenizer)
        self._end_ids = np.array(sorted(self._end_tokens))
        self._longest_prompt = longest_prompt(model, sampling_config.max_response_tokens)
        self._version = version
        self._clock = clock
        self._table = SlotTable(slots, sampling_config.max_response_tokens)
        self._groups: dict[int, HeldGroup] = {}
        self._set_up()

    @property
    def version(self) -> int:
        return self._version

    @property
    def nbytes(self) -> int:
        """Bytes of the weights. Keys and values of the running sequences come on top: they grow with use."""
        return nbytes_of(self._model)

    @property
    def active_groups(self) -> int:
        return len(self._groups)

    @property
    def active_sequences(self) -> int:
        return self._table.slots - self._table.free

    def free_slots(self) -> int:
        return self._table.free

    def load(self, vector: Vector, version: int) -> None:
        load_flat(self._model, vector)
        self._version = version

    def add(self, request: GroupRequest) -> None:
        if request.group_id in self._groups:
            raise RuntimeError(f"group {request.group_id} is held already")
        prefixes: Sequence[Partial | None] = request.partial or [None] * self._group_size
        if len(prefixes) != self._group_size:
            raise RuntimeError(f"group {request.group_id} has {len(prefixes)} prefixes, not {self._group_size}")
        growing = [index for index, prefix in enumerate(prefixes) if prefix is None or prefix.finished_by is None]
        if len(growing) > self._table.free:
            raise RuntimeError(
                f"group {request.group_id} needs {len(growing)} of {self._table.slots} slots, free: {self._table.free}"
            )
        prompt = self._prompt_of(request.item)
        prompt_tokens = encode_prompt(self._tokenizer, prompt)
        if len(prompt_tokens) > self._longest_prompt:
            raise ValueError(
                f"the prompt of item {request.item} has {len(prompt_tokens)} tokens; with responses of up to "
                f"{self._table.longest} the model holds prompts of up to {self._longest_prompt}"
            )
        self._groups[request.group_id] = HeldGroup(
            request=request,
            prompt=prompt,
            prompt_tokens=prompt_tokens,
            ended=[prefix if prefix is not None and prefix.finished_by else None for prefix in prefixes],
            slots={index: self._take(request, index, prefixes[index]) for index in growing},
            started_at=request.started_at,
        )

    def step(self) -> list[FinishedGroup]:
        if not self._groups:
            return []
        for group in self._groups.values():
            if group.waits:
                self._join(group)
                group.waits = False
        self._advance()
        now = self._clock()
        finished = []
        for group_id, group in list(self._groups.items()):
            if group.started_at is None:
                group.started_at = now
            if not group.slots:
                finished.append(self._groups.pop(group_id).finish(self._text, now))
        return finished

    def abort(self, group_ids: Collection[int] | None = None) -> list[PartialGroup]:
        chosen = list(self._groups) if group_ids is None else list(group_ids)
        missing = [group_id for group_id in chosen if group_id not in self._groups]
        if missing:
            raise KeyError(f"groups {missing} are not held; held: {sorted(self._groups)}")
        self._leave(set(chosen))
        taken_back = []
        for group_id in chosen:
            group = self._groups.pop(group_id)
            prefixes = {response: self._table.read(slot, None) for response, slot in group.slots.items()}
            for slot in group.slots.values():
                self._table.release(slot)
            taken_back.append(group.take_back(prefixes))
        return taken_back

    def greedy(self, prompts: Sequence[str], prefix: str = "") -> list[str]:
        return answer(
            self._model,
            self._tokenizer,
            prompts,
            prefix=prefix,
            longest=self._table.longest,
            rows=self._table.slots,
            pick=lambda logits, indices, place: sampling.greedy(logits),
        )

    def sampled(self, prompts: Sequence[str], prefix: str = "", first: int = 0) -> list[str]:
        longest = self._table.longest
        stream = np.array([uniforms(self._seed, EVALUATION_EPOCH, first + i, 0, longest) for i in range(len(prompts))])
        return answer(
            self._model,
            self._tokenizer,
            prompts,
            prefix=prefix,
            longest=longest,
            rows=self._table.slots,
            pick=lambda logits, indices, place: self._draw(logits, stream[indices, place])[0],
        )

    def _take(self, request: GroupRequest, response: int, prefix: Partial | None) -> int:
        stream = uniforms(self._seed, request.epoch, request.position, response, self._table.longest)
        return self._table.take((request.group_id, response), stream, prefix)

    def _set_up(self) -> None:
        """What decodes: one batch for all groups. Whoever decodes otherwise replaces this and the next three."""
        self._batch = DecodingBatch(self._model, self._table.slots)
        self._rows = np.zeros(0, dtype=np.int64)
        """Row of the batch -> slot."""

    def _join(self, group: HeldGroup) -> None:
        """Hand the responses to the batch; a new group's prompt is computed once for all of them."""
        if group.request.partial:
            for slot in group.slots.values():
                prefix = self._table.read(slot, None)
                self._batch.join(np.concatenate([group.prompt_tokens, prefix.tokens]), copies=1)
        else:
            self._batch.join(group.prompt_tokens, copies=self._group_size)
        self._rows = np.concatenate([self._rows, np.array(list(group.slots.values()), dtype=np.int64)])

    def _advance(self) -> None:
        """One token for every response that grows; those that end leave."""
        if not len(self._rows):
            return
        logits = self._batch.forward()
        drawn, gone = self._extend(self._rows, logits)
        self._batch.feed(drawn)
        if gone.any():
            self._rows = self._rows[self._batch.drop(gone)]

    def _leave(self, group_ids: set[int]) -> None:
        """Take the groups' rows out of the batch; their slots stay theirs."""
        gone = np.array([self._table.owner(slot)[0] in group_ids for slot in self._rows.tolist()], dtype=np.bool_)
        if gone.any():
            self._rows = self._rows[self._batch.drop(gone)]

    def _extend(self, slots: Indices, logits: torch.Tensor) -> tuple[torch.Tensor, npt.NDArray[np.bool_]]:
        """Draw and record one token for each slot, int64 [rows]; bool [rows]: which ended and lost their slot."""
        drawn, logprobs = self._draw(logits, self._table.next_uniforms(slots))
        tokens = drawn.numpy()
        full = self._table.record(slots, tokens, logprobs.numpy(), self._version)
        ended = np.isin(tokens, self._end_ids)
        gone = ended | full
        for row in np.flatnonzero(gone):
            slot = int(slots[row])
            group_id, response = self._table.owner(slot)
            group = self._groups[group_id]
            group.ended[response] = self._table.read(slot, "eos" if ended[row] else "length")
            del group.slots[response]
            self._table.release(slot)
        return drawn, gone

    def _draw(self, logits: torch.Tensor, numbers: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        return sampling.sample(
            logits, torch.from_numpy(numbers), temperature=self._sampling.temperature, top_p=self._sampling.top_p
        )

    def _text(self, tokens: Tokens) -> str:
        return decode_response(self._tokenizer, tokens, self._end_tokens)


def longest_prompt(model: PreTrainedModel, response_tokens: int) -> int:
    """Prompt tokens that leave room for a response of this many. Raises ValueError when that is none."""
    positions = getattr(model.config.get_text_config(decoder=True), "max_position_embeddings", None)
    if positions is None:
        return 2**31
    if response_tokens >= positions:
        raise ValueError(
            f"sampling.max_response_tokens {response_tokens} leaves no room for a prompt in a model of {positions} "
            f"positions; allowed: up to {positions - 1}"
        )
    return int(positions) - response_tokens
