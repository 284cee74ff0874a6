"""No message leaves out what is allowed: every field of a job is given what it cannot be, and the words must say so."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from engine.config import Job, JobError, Partition, check_job
from engine.config.allowed import Kind, Words, allowed, branches, kind_at

WRONG = (True, None, 1.5, -1, float("inf"), float("nan"), "no such word", [1], {"a": 1}, "1:x")


def places(model: type[BaseModel], prefix: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every key of every section, innermost ones last."""
    for name, field in model.model_fields.items():
        yield (*prefix, name)
        for part in branches(field.annotation):
            if isinstance(part, type) and issubclass(part, BaseModel) and part is not Partition:
                yield from places(part, (*prefix, name))


def problems(place: tuple[str, ...], value: Any, profile: dict[str, Any]) -> dict[str, str]:
    """What a job says of a wrong value at a place; nothing where it may be that."""
    document: dict[str, Any] = {"profile": profile} if place[0] == "profile" else {}
    if place[0] == "model" and "lora" in place:
        document["model"] = {"source": "some/model"}
    here = document
    for key in place[:-1]:
        here = here.setdefault(key, {})
    here[place[-1]] = value
    try:
        check_job(document)
    except JobError as error:
        return error.problems
    return {}


def a_profile() -> dict[str, Any]:
    speeds = {"slots": 64, "tokens_per_s": 1250, "half_batch": 24, "resume_tokens": 25}
    lease = {"in_s": 7.7, "out_s": 5.59}
    return {
        "rollout": speeds,
        "train": {"tokens_per_s": 2800, "chunk_s": 0.6, "max_chunk_groups": 8},
        "optimizer_s": 2.0,
        "weight_sync_s": 3.0,
        "switch": {"rollout_on_train": lease, "train_on_rollout": lease | {"grad_s": 1.21}},
        "response_tokens": {"median": 700, "max": 2048},
        "prompt_tokens": 400,
    }


@pytest.mark.parametrize("place", list(places(Job)), ids=".".join)
def test_every_field_says_what_it_may_be_instead_of_a_wrong_value(place: tuple[str, ...]) -> None:
    refused = 0
    for value in WRONG:
        for path, sentence in problems(place, value, a_profile()).items():
            refused += 1
            assert any(word in sentence for word in ("must", "allowed", "known", "did you mean", "is required:")), (
                f"{path}: {sentence}"
            )
            for machine in ("input should", "string should", "valid integer", "NoneType", "pattern", "True", "None"):
                assert machine not in sentence, f"{path}: {sentence}"
    assert refused, "nothing was refused, so nothing was tested"


class Section(BaseModel):
    share: float = Field(0.0, gt=0, lt=1)
    few: int = Field(0, ge=-2, lt=8)
    word: Annotated[str | None, Words(("a", "b"))] = None
    one: Annotated[str, Words(("torch",))] = "torch"
    kind: Literal["x", "y"] | None = None
    pair: tuple[Annotated[float, Field(ge=0)], Annotated[float, Field(ge=0)]] = (0.0, 1.0)
    mixed: list[str] | Literal["all"] | None = None
    flags: dict[str, bool] = Field(default_factory=dict)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("share", "a number above 0, below 1"),
        ("few", "a whole number from -2 to 7"),
        ("word", "one of a, b, or null"),
        ("one", "torch"),
        ("kind", "one of x, y, or null"),
        ("pair", "a list of 2, each a number of at least 0"),
        ("mixed", "a list, all, or null"),
        ("flags", "a mapping, each value true or false"),
    ],
)
def test_a_type_and_its_bounds_become_words(name: str, words: str) -> None:
    assert allowed(kind_at(Section, [name])) == words


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("model.prompt_template", True),
        ("task.rewards", False),
        ("task.params.max_terms", True),
        ("model.lora.targets", False),
        ("algorithm.loss", False),
        ("seed", False),
        ("nothing.there", False),
        ("profile.rollout.slots", False),
    ],
)
def test_where_quotes_would_help_is_known(path: str, text: bool) -> None:
    assert kind_at(Job, path.split(".")).takes_any_text is text


def test_a_place_that_is_not_there_is_of_no_known_kind() -> None:
    assert not kind_at(Job, ["algorithm", "stps"]).known
    assert Kind(type=int).known
