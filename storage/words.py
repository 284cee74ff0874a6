"""The words that databases, engine and pages share: kinds of span, causes of idle time, states, and the rollup layout.

Pure constants and look-ups. Every other file takes these strings from here, so that a misspelt word is an error where
it is written and never a new kind of time.
"""

from __future__ import annotations

from collections.abc import Iterable

SPAN_KINDS = (
    "rollout",
    "train",
    "scoring",
    "evaluate",
    "optimizer",
    "weight_sync",
    "switch_in",
    "switch_out",
    "grad_merge",
    "checkpoint",
    "startup",
    "idle",
)
"""What a device can be doing; a device's life is a gapless sequence of spans of these kinds."""

BUSY_KINDS = tuple(kind for kind in SPAN_KINDS if kind != "idle")
"""Everything that is not a bubble."""

ROLES = ("primary", "auxiliary")
"""Primary on the role's home pool, auxiliary on the other one."""

ROLE_KINDS = ("rollout", "train")
"""Kinds whose spans must say their role."""

IDLE_CAUSES = (
    "failure",
    "paused",
    "draining",
    "weights_pending",
    "waiting_for_rewards",
    "staleness_cap",
    "waiting_for_groups",
    "step_barrier",
    "no_work",
)
"""Why a device idles, in order of priority: when several hold, the first one is the cause."""

RUN_STATES = (
    "queued",
    "starting",
    "warming_up",
    "running",
    "pausing",
    "paused",
    "stopping",
    "finished",
    "stopped",
    "failed",
    "interrupted",
)
TERMINAL = ("finished", "stopped", "failed", "interrupted")
"""A run in one of these never changes its state again."""

ENGINE_STATES = ("starting", "ready", "stopping", "stopped")

POOLS = ("rollout", "train")
"""RollPool and TrainPool; a device of a colocated run has no pool."""

GROUP_STATES = ("consumed", "excluded")

EVAL_NAMES = ("held_out", "control")

LOG_LEVELS = ("debug", "info", "warning", "error")

DIRECTIONS = ("rollout_on_train", "train_on_rollout")
"""Which pool's devices are lent: the trainer's devices generate, or the rollouter's devices train."""

DECISIONS = ("lend", "refuse", "end", "revoke")
"""What can be decided about a lease."""

LEASE_STATES = ("granted", "preparing", "working", "draining", "releasing", "released")
"""A lease's life, in this order; it may skip states but never goes back."""

LEASE_ENDS = ("policy", "unused", "revoked", "died", "run_ended")
"""What ended a lease: the policy, the policy after it had found nothing to do, an override, a death, the run's end."""

COMMAND_STATES = ("pending", "accepted", "applied", "rejected", "superseded", "expired")

CHANGE_KINDS = ("staleness", "partition", "policy")
"""Commands that change a run's settings; each raises its config_version by one, and `undo` takes the last one back."""

COMMAND_KINDS = ("launch", "import", *CHANGE_KINDS, "undo", "pause", "resume", "checkpoint", "stop", "delete")

RUN_COMMAND_KINDS = tuple(kind for kind in COMMAND_KINDS if kind not in ("launch", "import"))
"""Commands that make sense only for a run that exists, so they must name it."""

MAX_SPAN_S = 60.0
"""Longer spans are stored in pieces of this length, so that a window query need start only this much before it."""

LONGEST_SPAN_S = 86_400.0
"""A span longer than a day is a wrong clock (a t0 of 0 is fifty years); workers close long phases sooner."""

RESOLUTIONS_S = (1, 10, 60)
"""Bin lengths of the rollups in seconds. A 60 s bin holds at most 60,000 ms, so a uint16 per cell is enough."""

COLUMNS_VERSION = 1
"""Layout number stored with each rollup. Columns may be appended under a new number, never moved or removed."""

BUSY_COLUMNS = (
    "rollout",
    "rollout_aux",
    "train",
    "train_aux",
    "scoring",
    "evaluate",
    "optimizer",
    "weight_sync",
    "switch_in",
    "switch_out",
    "grad_merge",
    "checkpoint",
    "startup",
)
IDLE_COLUMNS = tuple(f"idle_{cause}" for cause in IDLE_CAUSES)
COLUMNS = BUSY_COLUMNS + IDLE_COLUMNS
"""The columns of a rollup, in the order of its cells: kinds (rollout and train by role), then idle by cause."""

COLUMNS_OF_VERSION = {1: len(COLUMNS)}
"""How many columns a rollup of each layout has; older rollups are read with zeros in the columns they lack."""

USEFUL_COLUMNS = ("rollout", "rollout_aux", "train", "train_aux", "scoring", "evaluate")
"""The work a job is run for; the rest of the busy time is overhead."""


def _column_indices() -> dict[tuple[str, str | None, str | None], int]:
    """Every legal (kind, role, cause) and the index of the column its time belongs to."""
    indices: dict[tuple[str, str | None, str | None], int] = {}
    for kind in BUSY_KINDS:
        if kind in ROLE_KINDS:
            indices[kind, "primary", None] = COLUMNS.index(kind)
            indices[kind, "auxiliary", None] = COLUMNS.index(f"{kind}_aux")
        else:
            for role in (None, *ROLES):
                indices[kind, role, None] = COLUMNS.index(kind)
    for cause in IDLE_CAUSES:
        for role in (None, *ROLES):
            indices["idle", role, cause] = COLUMNS.index(f"idle_{cause}")
    return indices


COLUMN_INDEX = _column_indices()
"""(kind, role, cause) -> column index; a combination that is not here is not a span."""


def column_index(kind: str, role: str | None, cause: str | None) -> int:
    """Index into `COLUMNS` for a span's words. Raises ValueError naming the word that is wrong and what is allowed."""
    index = COLUMN_INDEX.get((kind, role, cause))
    if index is None:
        raise ValueError(_why_not(kind, role, cause))
    return index


def _why_not(kind: str, role: str | None, cause: str | None) -> str:
    if kind not in SPAN_KINDS:
        return refusal("kind", kind, SPAN_KINDS)
    if role is not None and role not in ROLES:
        return refusal("role", role, ROLES)
    if kind in ROLE_KINDS and role is None:
        return f"role of a {kind} span must be one of {', '.join(ROLES)}, got None"
    if kind == "idle":
        return refusal("cause of an idle span", cause, IDLE_CAUSES)
    return f"cause of a span of kind {kind} must be None (only idle has one), got {cause!r}"


def refusal(what: str, value: object, allowed: Iterable[str]) -> str:
    """The one sentence with which a word is refused."""
    return f"{what} must be one of {', '.join(allowed)}, got {value!r}"


def require(what: str, value: object, allowed: Iterable[str]) -> None:
    """Raise ValueError unless `value` is one of `allowed`."""
    if value not in (allowed := tuple(allowed)):
        raise ValueError(refusal(what, value, allowed))
