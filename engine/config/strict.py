"""What every section of a job has in common: strict keys, strict numbers, frozen once read."""

from __future__ import annotations

from typing import Any, get_args

from pydantic import BaseModel, ConfigDict, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from engine.config.allowed import Words, allowed, kind_of

Scalar = int | float | str | bool


class Strict(BaseModel):
    """Unknown keys are errors, true is no number and infinity no value; nothing rewrites a job at run time."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _true_is_no_number(cls, value: Any, info: ValidationInfo) -> Any:
        kinds = get_args(annotation := cls.model_fields[str(info.field_name)].annotation) or (annotation,)
        if isinstance(value, bool) and bool not in kinds and (int in kinds or float in kinds):
            raise PydanticCustomError("true_is_no_number", "must be a number")
        return value

    @field_validator("*")
    @classmethod
    def _one_of_its_words(cls, value: Any, info: ValidationInfo) -> Any:
        field = cls.model_fields[str(info.field_name)]
        words = next((mark.words for mark in field.metadata if isinstance(mark, Words)), None)
        if words is not None and value is not None and value not in words:
            raise ValueError(f"must be {allowed(kind_of(field))}, got {value!r}")
        return value


def one_of(value: str, allowed: tuple[str, ...]) -> str:
    """The value, where it is one of those allowed; ValueError otherwise."""
    if value not in allowed:
        raise ValueError(f"must be one of {', '.join(allowed)}, got {value!r}")
    return value
