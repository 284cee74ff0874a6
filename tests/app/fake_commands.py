"""Test data only: commands of a run as an engine would have answered them, at moments of the test's choosing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from storage.mailbox import Mailbox
from storage.paths import DataDir
from storage.words import CHANGE_KINDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One command."""

    kind: str
    payload: Mapping[str, Any] = field(default_factory=dict)
    who: str = "ana"
    at: float
    """Sent, unix seconds."""
    took_s: float = 0.4
    """Until it was applied."""
    step: int | None = None
    """Its effective step."""
    state: str = "applied"
    answer: str = ""
    changes: Mapping[str, Any] | None = None
    """What an undo sets; of a change it is the payload."""
    expected: str | None = None
    cost: Mapping[str, Any] | None = None
    """What moving devices took."""


def write_commands(folder: DataDir, run_id: str, asked: Sequence[Asked], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Sends and answers them in their order. settings: those that the run began with. Returns those that govern."""
    now = 0.0
    governs = dict(settings)
    with Mailbox(folder.control_db, clock=lambda: now) as mailbox:
        for each in asked:
            now = each.at
            number = mailbox.send(
                each.kind,
                dict(each.payload),
                run_id,
                who=each.who,
                expected_effect=each.expected,
            )
            if each.state == "pending":
                continue
            if each.state == "rejected":
                mailbox.reject(number, each.answer)
                continue
            changes = dict(each.changes or each.payload) if each.kind in (*CHANGE_KINDS, "undo") else {}
            governs |= changes
            mailbox.accept(number, each.answer or None)
            now = each.at + each.took_s
            if each.state == "applied":
                result = {"changes": changes, "settings": dict(governs), **(each.cost or {})} if changes else None
                mailbox.apply(number, each.answer or "Done.", effective_step=each.step, result=result)
            elif each.state == "superseded":
                mailbox.supersede(number, each.answer)
    return governs
