"""What a job learns from: where its questions come from and how answers to them are scored.

Whether a file is there and holds what it must is asked at launch, by `engine.learning.tasks.check_task`.
"""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import Field, ValidationInfo, field_validator, model_validator

from engine.config.allowed import Told
from engine.config.strict import Scalar, Strict, one_of

MADE, FILES = "reasoning_gym", ("jsonl", "parquet", "hf")
"""Kinds of source: items that are made from a seed, and items that are read."""

DEFAULT_ITEMS = 20_000
"""Training items made from a seed where the job does not say how many: more than a small job asks for."""

HUB_PARAMS = ("name", "split", "revision")
"""What `params` may hold for a data set of the library `datasets`."""

OWN_SCORER = "scorer"
"""The scorer that comes with a data set of reasoning-gym; `reasoning_gym` is another word for it."""

PYTHON_REWARD = r"python:(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*:[A-Za-z_]\w*"

SLOT = "{prompt}"
"""Where a prompt template takes the prompt."""


def check_reward(name: str, source: str | None) -> str:
    """The reward's name. Raises ValueError for one that does not exist or that the source cannot have."""
    name = OWN_SCORER if name == MADE else name
    made = source is None or source.partition(":")[0] == MADE
    if name == OWN_SCORER and not made:
        raise ValueError(
            f"{OWN_SCORER} comes with the data sets of reasoning_gym, and the source is {source!r}; allowed: exact, "
            "math_verify or python:MODULE:FUNCTION"
        )
    if not re.fullmatch(PYTHON_REWARD, name) and name not in (OWN_SCORER, "exact", "math_verify"):
        raise ValueError(
            f"must be {OWN_SCORER}, exact, math_verify or python:MODULE:FUNCTION, such as python:rewards:short, "
            f"got {name!r}"
        )
    return name


class RewardConfig(Strict):
    """One of several rewards: an answer earns the sum of weight x reward."""

    name: str
    weight: float = 1.0
    """May be negative, and 0 for one that is only reported."""


class TaskConfig(Strict):
    source: str = "reasoning_gym:chain_sum"
    """`reasoning_gym:DATASET`, `jsonl:PATH`, `parquet:PATH`, or `hf:NAME` (a folder or a name on the hub)."""
    params: dict[str, Scalar | list[Scalar | list[Scalar]]] = Field(default_factory=dict)
    """Keyword arguments of the reasoning-gym data set; `name`, `split` and `revision` of one from `hf`."""
    prompt_field: str | None = None
    """Field of a row that holds the prompt; null: `question`, or else `prompt`."""
    answer_field: str = "answer"
    """Field of a row that holds the answer; one that ends in a line `#### N` is read as N."""
    held_out: str | None = None
    """`jsonl:PATH`, `parquet:PATH` or `hf:NAME` (its split `test`) of the held-out items; null: some of the source's
    rows, chosen by a hash of their prompts, whatever the run's seed."""
    prompt_template: str | None = None
    """What the model is asked, with `{prompt}` where the prompt goes; null: the prompt itself. No other field of a row
    is put in: other braces reach the model as they stand, and what looks like a field is named at launch."""
    rewards: list[RewardConfig] = Field(default_factory=list)
    """Several rewards with weights, in place of `reward`; the first one judges the held-out answers."""
    reward: str = OWN_SCORER
    """`scorer`: 1 iff the data set's own scorer gives 1.0; `exact`: 1 iff the text is the answer; `math_verify`: 1 iff
    it says the same number or formula; `python:MODULE:FUNCTION`: what that function returns, a single number from
    -1e9 to 1e9 (of Python, numpy or torch; True is 1)."""
    reward_deadline_s: float = Field(10.0, gt=0, le=600)
    """Seconds that scoring one answer may take; after that the group has no reward and is excluded. Modules that a
    function imports while it is called are not counted: loading, then or at the start, may take six times as long, and
    30 s in any case."""
    answer_after: str | None = None
    """Score what follows the single occurrence of this text; an answer without it, or with two, earns 0. Functions of
    one's own get the whole text."""
    items: int | None = Field(None, ge=1)
    """Training items; null: 20,000 where they are made from the seed, and all rows of a file that are not held out."""
    sha256: Annotated[str | None, Told("64 hexadecimal digits")] = Field(None, pattern=r"^[0-9a-f]{64}$")
    """Of the rows that a launch read, with all their fields; filled in there. A file that says something else later is
    refused."""
    shuffle: bool = True
    epochs: int | None = Field(None, ge=1)
    """Passes over the items before the run ends by itself; null: as many as the steps need."""

    @field_validator("source")
    @classmethod
    def _source(cls, value: str) -> str:
        kind, _, name = value.partition(":")
        if kind not in (MADE, *FILES) or not name.strip():
            raise ValueError(
                "must be reasoning_gym:DATASET, such as reasoning_gym:chain_sum, or jsonl:PATH, parquet:PATH, hf:NAME, "
                f"got {value!r}"
            )
        return value

    @field_validator("params")
    @classmethod
    def _params(cls, value: dict[str, object], info: ValidationInfo) -> dict[str, object]:
        source = str(info.data.get("source", MADE))
        kind = source.partition(":")[0]
        if kind in ("jsonl", "parquet") and value:
            raise ValueError(f"have no meaning for source {source!r}; allowed: none, got {', '.join(value)}")
        if kind == "hf":
            for name, given in value.items():
                one_of(name, HUB_PARAMS)
                if not isinstance(given, str):
                    raise ValueError(f"{name} must be text, got {given!r}")
        return value

    @field_validator("prompt_field", "answer_field", "answer_after")
    @classmethod
    def _some_text(cls, value: str | None) -> str | None:
        if value == "":
            raise ValueError("must be some text, got ''")
        return value

    @field_validator("prompt_field", "held_out", "sha256")
    @classmethod
    def _of_a_file(cls, value: str | None, info: ValidationInfo) -> str | None:
        source = str(info.data.get("source", ""))
        if value is not None and source.startswith(f"{MADE}:"):
            raise ValueError(f"has no meaning for source {source!r}, which makes its items; allowed: null")
        return value

    @field_validator("held_out")
    @classmethod
    def _held_out(cls, value: str | None) -> str | None:
        if value is not None:
            kind, _, name = value.partition(":")
            if kind not in FILES or not name.strip():
                raise ValueError(f"must be jsonl:PATH, parquet:PATH, hf:NAME or null, got {value!r}")
        return value

    @field_validator("prompt_template")
    @classmethod
    def _template(cls, value: str | None) -> str | None:
        if value is not None and value.count(SLOT) != 1:
            raise ValueError(f"must hold {SLOT} once, where the prompt goes, got {value!r}")
        return value

    @field_validator("rewards")
    @classmethod
    def _rewards(cls, value: list[RewardConfig], info: ValidationInfo) -> list[RewardConfig]:
        found = [r.model_copy(update={"name": check_reward(r.name, info.data.get("source"))}) for r in value]
        names = [reward.name for reward in found]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"each reward may be named once, twice there is {', '.join(twice)}")
        if found and not any(reward.weight for reward in found):
            raise ValueError("all weights are 0, so that no answer is better than another; allowed: at least one not 0")
        return found

    @field_validator("reward")
    @classmethod
    def _reward(cls, value: str, info: ValidationInfo) -> str:
        if info.data.get("rewards"):
            return value  # the list takes its place
        return check_reward(value, info.data.get("source"))

    @model_validator(mode="after")
    def _two_fields(self) -> TaskConfig:
        if self.prompt_field == self.answer_field:
            raise ValueError(f"prompt_field and answer_field are both {self.answer_field!r}; allowed: two fields")
        return self

    @property
    def kind(self) -> str:
        """Of the source: reasoning_gym, jsonl, parquet or hf."""
        return self.source.partition(":")[0]

    @property
    def reads_files(self) -> bool:
        """Its items are read, not made."""
        return self.kind in FILES

    @property
    def size(self) -> int:
        """Training items. Those of a file are known once a launch has counted them (see `items`); until then, where
        nothing is run, as many as are made from a seed."""
        return DEFAULT_ITEMS if self.items is None else self.items

    @property
    def scored_by(self) -> tuple[RewardConfig, ...]:
        """All rewards; a single one weighs 1."""
        return tuple(self.rewards) or (RewardConfig(name=self.reward),)

    @property
    def named_judge(self) -> str | None:
        """The reward that says which held-out answers are right, where a reader could think of another rule: it may
        give more than right or wrong, or is one of several. None where right and wrong are all that there is."""
        first, *others = self.scored_by
        return first.name if others or first.name.startswith("python:") else None
