"""What every rollouter keeps of its groups, whatever decodes them: prefixes, random streams, who ended, what is free.

A group joins whole, so that all its first tokens carry one version; a response that ends frees its slot at once. Knows
tokens only: how the next ones are computed is said by the three methods that a subclass brings.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from transformers import PreTrainedTokenizerBase

from engine.config import SamplingConfig
from engine.learning import sampling
from engine.learning.held_group import HeldGroup
from engine.learning.prompts import PromptRefused, check_length, decode_response, encode_continuation, encode_prompt
from engine.learning.randomness import EVALUATION_EPOCH, uniforms
from engine.learning.sequences import FinishedGroup, GroupRequest, Partial, PartialGroup, Tokens
from engine.learning.slots import Indices, SlotTable
from engine.learning.weights import Vector


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutSettings:
    """What a job says of its rollouts, whatever decodes them."""

    prompt_of: Callable[[int], str]
    """Turns an item into its question."""
    seed: int
    group_size: int
    sampling: SamplingConfig
    slots: int
    """Responses that grow at once."""
    version: int = 0
    """Of the weights at the start."""
    clock: Callable[[], float] = time.time
    """Unix seconds."""


class SlotRollouter(ABC):
    """See `engine.learning.rollouter.Rollouter` for the methods."""

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        settings: RolloutSettings,
        *,
        end_tokens: Collection[int],
        longest_prompt: int,
    ) -> None:
        """`longest_prompt` in tokens. Raises ValueError where a group needs more slots than there are."""
        slots = settings.slots
        if slots < settings.group_size:
            raise ValueError(f"{slots} slots cannot hold one group of {settings.group_size} responses")
        self._tokenizer = tokenizer
        self._prompt_of = settings.prompt_of
        self._seed = settings.seed
        self._group_size = settings.group_size
        self._sampling = settings.sampling
        self._end_tokens = frozenset(end_tokens)
        self._end_ids = np.array(sorted(self._end_tokens))
        self._longest_prompt = longest_prompt
        self._version = settings.version
        self._clock = settings.clock
        self._table = SlotTable(slots, settings.sampling.max_response_tokens)
        self._groups: dict[int, HeldGroup] = {}

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes that it keeps in memory, without what grows with use."""

    @abstractmethod
    def load(self, vector: Vector, version: int) -> None:
        """See the protocol."""

    @abstractmethod
    def greedy(self, prompts: Sequence[str], prefix: str = "") -> list[str]:
        """See the protocol."""

    def sleep(self) -> None:  # noqa: B027, most have nothing to do
        """Passive from now on: device memory is given back, where that frees any. It must hold no group."""

    def wake(self) -> None:  # noqa: B027
        """Active again, with the weights it slept with; `load` wakes it too."""

    @abstractmethod
    def _join(self, group: HeldGroup) -> None:
        """Hand the group's growing responses, those that have a slot, to what decodes."""

    @abstractmethod
    def _advance(self) -> None:
        """One token for every response that grows, given to `_record`; those that end leave."""

    @abstractmethod
    def _leave(self, group_ids: set[int]) -> None:
        """Take the groups out of what decodes; their slots stay theirs."""

    @property
    def version(self) -> int:
        return self._version

    @property
    def active_groups(self) -> int:
        return len(self._groups)

    @property
    def active_sequences(self) -> int:
        return self._table.slots - self._table.free

    def free_slots(self) -> int:
        return self._table.free

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
        prompt_tokens = self._encoded(prompt)  # may refuse it: nothing was taken yet
        self._groups[request.group_id] = HeldGroup(
            request=request,
            prompt=prompt,
            prompt_tokens=prompt_tokens,
            ended=[prefix if prefix is not None and prefix.finished_by else None for prefix in prefixes],
            slots={index: self._take(request, index, prefixes[index]) for index in growing},
            started_at=request.started_at,
        )

    def refusal(self, prompt: str, prefix: str = "") -> PromptRefused | None:
        """Why the model cannot be asked this; None: it can."""
        try:
            self._encoded(prompt, opening=len(encode_continuation(self._tokenizer, prefix)))
        except PromptRefused as refused:
            return refused
        return None

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

    def _encoded(self, prompt: str, *, opening: int = 0) -> Tokens:
        """int32 [P]. Raises PromptRefused; `opening` is the tokens that an answer is made to start with."""
        tokens = encode_prompt(self._tokenizer, prompt)
        check_length(len(tokens), longest=self._longest_prompt, response=self._table.longest, opening=opening)
        return tokens

    def _take(self, request: GroupRequest, response: int, prefix: Partial | None) -> int:
        stream = uniforms(self._seed, request.epoch, request.position, response, self._table.longest)
        return self._table.take((request.group_id, response), stream, prefix)

    def _record(
        self, slots: Indices, tokens: npt.NDArray[np.int64], logprobs: npt.NDArray[np.float32]
    ) -> npt.NDArray[np.bool_]:
        """Append one token to each slot, all [rows]; bool [rows]: which ended and lost their slot."""
        full = self._table.record(slots, tokens, logprobs, self._version)
        ended = np.isin(tokens, self._end_ids)
        gone = ended | full
        for row in np.flatnonzero(gone):
            slot = int(slots[row])
            group_id, response = self._table.owner(slot)
            group = self._groups[group_id]
            group.ended[response] = self._table.read(slot, "eos" if ended[row] else "length")
            del group.slots[response]
            self._table.release(slot)
        return gone

    def _draw(self, logits: torch.Tensor, numbers: npt.NDArray[np.float64]) -> tuple[torch.Tensor, torch.Tensor]:
        """Tokens and log-probabilities from logits [rows, vocabulary] and uniform numbers [rows], on the CPU."""
        tokens, logprobs = sampling.sample(
            logits,
            torch.from_numpy(numbers).to(logits.device),
            temperature=self._sampling.temperature,
            top_p=self._sampling.top_p,
        )
        return tokens.cpu(), logprobs.cpu()

    def _evaluation_streams(self, count: int, first: int) -> npt.NDArray[np.float64]:
        """float64 [count, longest]: the random numbers of the evaluation streams from `first` on."""
        longest = self._table.longest
        return np.array([uniforms(self._seed, EVALUATION_EPOCH, first + i, 0, longest) for i in range(count)])

    def _text(self, tokens: Tokens) -> str:
        return decode_response(self._tokenizer, tokens, self._end_tokens)
