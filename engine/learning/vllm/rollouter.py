"""A rollouter that decodes with vLLM and keeps its groups as every other one does.

Tokens are drawn from our own streams, so that the answers are those of the transformers rollouter up to rounding, on
whichever device a group is generated or continued. vLLM may hold a request back for want of room: a step then gives it
no token, and its first one carries the version of a later step.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count

import numpy as np
import numpy.typing as npt
import torch
from transformers import PreTrainedTokenizerBase

from engine.learning import sampling
from engine.learning.held_group import HeldGroup
from engine.learning.prompts import encode_continuation
from engine.learning.slot_rollouter import RolloutSettings, SlotRollouter
from engine.learning.vllm.layout import NamedWeights
from engine.learning.vllm.probe import Probe, probe_tokens
from engine.learning.vllm.step_engine import Generated, Pick, StepEngine
from engine.learning.weights import Vector

MOST_EMPTY_STEPS = 1000
"""In a row. A long prompt is computed over several steps, a few dozen at the most, before its first token comes."""


@dataclass(slots=True, kw_only=True)
class _Question:
    """One that is answered outside of any group."""

    stream: npt.NDArray[np.float64] | None
    """[longest] random numbers; None: the most likely token each time."""
    tokens: list[int] = field(default_factory=list)
    """So far."""
    heard: torch.Tensor | None = None
    """float32 [vocabulary]: log-probabilities of its first token."""


class VllmRollouter(SlotRollouter):
    """See `engine.learning.rollouter.Rollouter` for the methods."""

    def __init__(
        self,
        make_engine: Callable[[Pick], StepEngine],
        layout: NamedWeights,
        tokenizer: PreTrainedTokenizerBase,
        settings: RolloutSettings,
        *,
        end_tokens: Collection[int],
        longest_prompt: int,
    ) -> None:
        """`make_engine` is given what draws its tokens; `layout` says what a vector of weights holds."""
        super().__init__(tokenizer, settings, end_tokens=end_tokens, longest_prompt=longest_prompt)
        self._layout = layout
        self._numbers = count()
        self._slot_of: dict[str, int] = {}
        """Key of a request -> slot of its response."""
        self._questions: dict[str, _Question] = {}
        """Key of a request -> what it answers outside of any group."""
        self._drawn = np.zeros(settings.slots, dtype=np.int64)
        self._logprobs = np.zeros(settings.slots, dtype=np.float32)
        """Slot -> what was drawn for it in the step under way."""
        self._empty_steps = 0
        """One after the other."""
        self._probe: Probe | None = None
        self._engine = make_engine(self._pick)

    @property
    def nbytes(self) -> int:
        """Bytes of the weights and of the room for keys and values."""
        return self._engine.nbytes

    def hear(self, weights: Iterable[tuple[str, torch.Tensor]]) -> torch.Tensor:
        """float32 [vocabulary]: log-probabilities after `probe_tokens` under these weights, which stay until `load`."""
        self._engine.load(weights, self._version)
        return self._probed()

    def load(self, vector: Vector, version: int) -> None:
        self.wake()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
            self._engine.load(self._layout.named(vector), version)
        self._version = version

    def sleep(self) -> None:
        """Give device memory back until `wake` or `load`, where that frees any. Raises RuntimeError with groups."""
        if not self._engine.frees_memory or self._probe is not None:
            return
        if self._groups:
            raise RuntimeError(f"groups {sorted(self._groups)} are held: abort them before the rollouter sleeps")
        probe = Probe(before=self._probed())
        self._engine.sleep()
        self._probe = probe

    def wake(self) -> None:
        """Be as before `sleep`. Raises RuntimeError when the model does not say what it said then."""
        if self._probe is None:
            return
        self._engine.wake()
        probe, self._probe = self._probe, None
        probe.check(self._probed())

    def greedy(self, prompts: Sequence[str], prefix: str = "") -> list[str]:
        return self._answer(prompts, prefix, [None] * len(prompts))

    def sampled(self, prompts: Sequence[str], prefix: str = "", first: int = 0) -> list[str]:
        return self._answer(prompts, prefix, list(self._evaluation_streams(len(prompts), first)))

    def _join(self, group: HeldGroup) -> None:
        for slot in group.slots.values():
            key = f"r{next(self._numbers)}"
            prefix = self._table.read(slot, None).tokens
            self._slot_of[key] = slot
            self._engine.add(
                key,
                [*group.prompt_tokens.tolist(), *prefix.tolist()],
                longest=self._table.longest - len(prefix),
                salt=self._salt,
            )

    def _advance(self) -> None:
        if not self._slot_of and not self._questions:
            return
        mine = []
        for generated in self._stepped():
            if generated.key in self._slot_of:
                mine.append(generated)
            else:
                self._note_answer(generated)
        if not mine:
            return
        slots = np.array([self._slot_of[generated.key] for generated in mine])
        tokens = np.array([generated.token for generated in mine])
        if not np.array_equal(tokens, self._drawn[slots]):
            raise RuntimeError("vLLM went on with another token than the one drawn")
        gone = self._record(slots, tokens, self._logprobs[slots])
        for generated, ended in zip(mine, gone.tolist(), strict=True):
            if generated.finished != ended:
                says = "finished" if generated.finished else "unfinished"
                raise RuntimeError(f"vLLM calls a response {says} that is not, after token {generated.token}")
            if ended:
                del self._slot_of[generated.key]

    def _stepped(self) -> list[Generated]:
        """What vLLM's next step brings. Raises RuntimeError where it has long brought nothing: it never will."""
        generated = self._engine.step()
        self._empty_steps = 0 if generated else self._empty_steps + 1
        if self._empty_steps > MOST_EMPTY_STEPS:
            raise RuntimeError(
                f"vLLM gave no token in {MOST_EMPTY_STEPS} steps, with {len(self._slot_of) + len(self._questions)} "
                "requests to go on with"
            )
        return generated

    def _leave(self, group_ids: set[int]) -> None:
        gone = [key for key, slot in self._slot_of.items() if self._table.owner(slot)[0] in group_ids]
        for key in gone:
            del self._slot_of[key]
        if gone:
            self._engine.abort(gone)

    @property
    def _salt(self) -> str:
        """Nothing computed under other weights is shared."""
        return f"version {self._version}"

    @torch.inference_mode()
    def _pick(self, keys: list[str], logits: torch.Tensor) -> torch.Tensor:
        """What a step draws: for responses from their streams, with the log-probability put aside."""
        tokens = torch.empty(len(keys), dtype=torch.long)
        rows = [row for row, key in enumerate(keys) if key in self._slot_of]
        if rows:
            slots = np.array([self._slot_of[keys[row]] for row in rows])
            own = logits if len(rows) == len(keys) else logits[rows]
            drawn, logprobs = self._draw(own, self._table.next_uniforms(slots))
            self._drawn[slots], self._logprobs[slots] = drawn.numpy(), logprobs.numpy()
            tokens[rows] = drawn
        for row, key in enumerate(keys):
            if key not in self._slot_of:
                tokens[row] = self._pick_answer(self._questions[key], logits[row])
        return tokens.to(logits.device)

    def _pick_answer(self, question: _Question, logits: torch.Tensor) -> int:
        if question.heard is None:
            question.heard = torch.log_softmax(logits.float(), dim=-1).cpu()
        if question.stream is None:
            return int(sampling.greedy(logits[None]))
        return int(self._draw(logits[None], question.stream[len(question.tokens)][None])[0])

    def _answer(
        self, prompts: Sequence[str], prefix: str, streams: Sequence[npt.NDArray[np.float64] | None]
    ) -> list[str]:
        opening = encode_continuation(self._tokenizer, prefix)
        asked = []
        encoded = [self._encoded(prompt, opening=len(opening)) for prompt in prompts]
        for tokens, stream in zip(encoded, streams, strict=True):
            ids = np.concatenate([tokens, opening]).tolist()
            question = _Question(stream=stream)
            asked.append(self._ask(ids, question, longest=self._table.longest, salt=self._salt))
        while self._questions:
            self._advance()
        return [self._text(np.concatenate([opening, question.tokens]).astype(np.int32)) for question in asked]

    def _probed(self) -> torch.Tensor:
        # with a salt of its own the whole prompt is computed, in the same shape each time: where blocks of it are
        # cached only the rest is, and rounds otherwise
        salt = f"probe {next(self._numbers)}"
        tokens = probe_tokens(self._tokenizer, self._prompt_of, self._longest_prompt)
        question = self._ask(tokens, _Question(stream=None), longest=1, salt=salt)
        while self._questions:
            self._advance()
        assert question.heard is not None
        return question.heard

    def _ask(self, ids: list[int], question: _Question, *, longest: int, salt: str) -> _Question:
        key = f"q{next(self._numbers)}"
        self._questions[key] = question
        self._engine.add(key, ids, longest=longest, salt=salt)
        return question

    def _note_answer(self, generated: Generated) -> None:
        question = self._questions[generated.key]
        question.tokens.append(generated.token)
        if generated.finished:
            del self._questions[generated.key]
