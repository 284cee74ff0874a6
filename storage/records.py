"""What is stored, as frozen dataclasses: one class a table, one field a column, JSON columns already decoded.

A record refuses words that `words.py` does not know and times that run backwards; it does not know how it is stored.
All times are unix seconds; a device is its index inside its run.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from storage import words
from storage.codec import json_column
from storage.device_records import DeviceRow, DeviceState, RollupWindow, Span, SpanTimes
from storage.lease_records import DecisionRow, LeaseOutcome, LeaseRow, LeaseVerdict, StateRow

__all__ = [
    "Command",
    "ComparisonRow",
    "DecisionRow",
    "DeviceRow",
    "DeviceState",
    "EngineRow",
    "EvalRow",
    "GroupRow",
    "LeaseOutcome",
    "LeaseRow",
    "LeaseVerdict",
    "LogRow",
    "RollupWindow",
    "RunRow",
    "Span",
    "SpanTimes",
    "StateRow",
    "StepRow",
    "WriterStats",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRow:
    """One optimizer update and the groups that it consumed."""

    run_id: str
    """The run."""
    step: int
    """Number of the step, in the order of the updates."""
    t_start: float
    """When its first chunk started, unix seconds."""
    t_end: float
    """When its optimizer update ended, unix seconds."""
    groups: int
    """Groups consumed."""
    prompt_tokens: int
    """Prompt tokens of these groups, each response counting its prompt."""
    response_tokens: int
    """Response tokens of these groups."""
    reward_mean: float | None = None
    """Mean reward of the responses."""
    loss: float | None = None
    """Mean token loss."""
    grad_norm: float | None = None
    """L2 norm before clipping."""
    entropy: float | None = None
    """Mean entropy of the policy's token distribution, nats."""
    response_len_mean: float | None = None
    """Mean response length, tokens."""
    lag_max: int | None = None
    """Largest lag of a consumed group, versions."""
    lag: dict[int, int] = field(metadata=json_column("lag_json", int_keys=True), default_factory=dict)
    """Lag in versions -> groups."""
    no_signal: int = 0
    """Groups whose rewards were all equal, so that they carried no gradient."""
    staleness: float | None = None
    """The bound in force."""
    metrics: dict[str, Any] = field(metadata=json_column("metrics_json"), default_factory=dict)
    """Everything else that a step reports: mismatch_kl, clip_share, capped_share, ess, all four also by_lag and by_role
    (of the trainer that computed it), learning_rate, publish_s, ..."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRow:
    """One prompt with its responses, consumed once or excluded once. Raises ValueError for another state."""

    run_id: str
    """The run."""
    group_id: int
    """Number in the order of starting."""
    epoch: int
    """Pass over the data."""
    item: int
    """Index of the training item."""
    state: str
    """consumed or excluded."""
    reason: str | None = None
    """Why it was excluded."""
    step: int | None = None
    """Step that consumed it."""
    version: int
    """Version of the weights that its first token was sampled from."""
    lag: int | None = None
    """Trainer's version minus `version` when consumed."""
    bound: float
    """Staleness under which it was started."""
    device: int | None = None
    """Device that finished it."""
    reward_mean: float | None = None
    """Mean reward; None when the reward failed, never 0 for that."""
    started_at: float
    """First token asked for, unix seconds."""
    finished_at: float
    """Last token sampled, unix seconds."""
    prompt: str
    """The question as the task words it, without what the model's chat template puts around it."""
    responses: list[dict[str, Any]] = field(metadata=json_column("responses"), default_factory=list)
    """One dict a response: text, reward, tokens (count), versions [[version, tokens], ...]."""

    def __post_init__(self) -> None:
        words.require("state of a group", self.state, words.GROUP_STATES)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalRow:
    """One evaluation of one version on held-out items. Raises ValueError for an unknown name."""

    run_id: str
    """The run."""
    step: int
    """Version that was evaluated."""
    name: str
    """held_out or control."""
    accuracy: float
    """Share of right answers, 0 to 1."""
    items: int
    """Items asked and scored."""
    at: float
    """When it ended, unix seconds."""
    failed: int | None = None
    """Items that could not be asked or scored, which are left out; None: an older version did not store it."""

    def __post_init__(self) -> None:
        words.require("name of an evaluation", self.name, words.EVAL_NAMES)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRow:
    """One line of a run's log. Raises ValueError for an unknown level."""

    run_id: str
    """The run."""
    at: float
    """Unix seconds."""
    level: str
    """debug, info, warning or error."""
    text: str
    """A sentence."""
    device: int | None = None
    """Device that said it; None for the engine."""
    id: int | None = None
    """Given by the database; None before it is stored."""

    def __post_init__(self) -> None:
        words.require("level", self.level, words.LOG_LEVELS)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineRow:
    """One life of an engine; the newest start is the current one."""

    engine_id: str
    """Made at start."""
    pid: int | None = None
    """Process."""
    host: str | None = None
    """Machine."""
    started_at: float | None = None
    """Unix seconds."""
    beat_at: float | None = None
    """Last heartbeat, unix seconds."""
    state: str | None = None
    """starting, ready, stopping or stopped."""
    version: str | None = None
    """Version of the program."""
    cores: int | None = None
    """Cores that it may use."""
    cpu_s: float | None = None
    """CPU seconds of the engine's process since its start."""
    ray_cpu_s: float | None = None
    """CPU seconds of Ray's own processes since the start."""
    spans_dropped: int | None = None
    """Raw spans dropped because the queue was full."""
    rows_written: int | None = None
    """Telemetry rows written in this life."""
    queue_depth: int | None = None
    """Rows waiting for the writer thread."""
    flush_lag_s: float | None = None
    """Age of the oldest waiting row, seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    """One run: its job in short, where it stands and how it ended. A figure that is not known yet is None."""

    run_id: str
    """Plain name, unique in the data folder."""
    name: str = ""
    """The job's name."""
    kind: str = ""
    """cpu, cuda, emulated or simulated."""
    state: str = "queued"
    """One of `words.RUN_STATES`, as last written; see `liveness.effective_state` for what it means now."""
    arm: str = ""
    """The scheduling policy."""
    consume: str | None = None
    """streaming or batch."""
    staleness: float | None = None
    """The bound that the operator last set."""
    partition: str | None = None
    """Devices of RollPool and TrainPool, such as "12:4"; None without pools."""
    seed: int | None = None
    """The job's seed."""
    job: str = ""
    """The resolved job, YAML."""
    base_dir: str | None = None
    """Folder against which the job's paths are resolved."""
    who: str | None = None
    """Who launched it."""
    engine_id: str | None = None
    """The engine life that runs or ran it."""
    created_at: float | None = None
    """Queued, unix seconds."""
    started_at: float | None = None
    """Devices taken, unix seconds."""
    training_at: float | None = None
    """When the first rollout could start, unix seconds; shares of idle time count from here."""
    ended_at: float | None = None
    """Reached a terminal state, unix seconds."""
    measured_until: float | None = None
    """When the last step ended, unix seconds; shares of idle time count until here."""
    steps_target: int | None = None
    """Steps that the job asks for."""
    start_step: int | None = None
    """Step that it resumed from; 0 for a fresh run."""
    steps: int | None = None
    """Steps completed by this run."""
    parent_run_id: str | None = None
    """The run that it resumed."""
    error: str | None = None
    """Why it failed, one sentence."""
    progress: str | None = None
    """What it is doing, one sentence such as "warm start 120/520"."""
    progress_fraction: float | None = None
    """How far that is, 0 to 1."""
    config_version: int | None = None
    """Counts the applied changes; a command may name the one it was made for."""
    params_sha256: str | None = None
    """Hash of the final parameters."""
    excluded: dict[str, int] = field(metadata=json_column("excluded_json"), default_factory=dict)
    """Reason -> groups excluded."""
    ledger: dict[str, Any] | None = field(metadata=json_column("ledger_json"), default=None)
    """The check of device time made when the run ended."""
    result: dict[str, Any] | None = field(metadata=json_column("result_json"), default=None)
    """The result fields that are final."""
    staleness_effective_step: int | None = None
    """First step made only of groups started under the present bound; None while none was changed."""
    buffer_groups: int | None = None
    """Finished groups waiting for the trainer."""
    in_flight_groups: int | None = None
    """Groups being generated."""
    profile: dict[str, Any] | None = field(metadata=json_column("profile_json"), default=None)
    """Costs and speeds as measured by this run, in the form of a job file's profile."""
    model_error: dict[str, Any] | None = field(metadata=json_column("model_error_json"), default=None)
    """How far the fitted stage models are off on this run."""
    guards: dict[str, str] = field(metadata=json_column("guards_json"), default_factory=dict)
    """Direction that the never-slower guard has switched off -> the sentence that says why."""
    deaths: int | None = None
    """Workers that died and were replaced; None while none has."""
    time_scale: float | None = None
    """Seconds here for one second that emulated devices stand for; None for real devices."""
    work_key: str | None = None
    """The same for runs whose tokens are the same work."""
    comparison: str | None = None
    """Id of the comparison that it is a part of; None for a run of its own."""
    comparison_label: str | None = None
    """The configuration that it stands for there, such as no_borrow:stream@8:8."""
    comparison_repeat: int | None = None
    """Repeat, from 1."""
    comparison_plan: dict[str, Any] | None = field(metadata=json_column("comparison_plan_json"), default=None)
    """What the whole comparison was to be, the same in each of its runs: repeats, labels, staleness, splits."""
    settings: dict[str, Any] | None = field(metadata=json_column("settings_json"), default=None)
    """What operators may change and governs now, by name, as the commands that change it write it; None: the job's."""
    imported_at: float | None = None
    """Brought here from another installation, unix seconds; None for a run of this one."""

    def __post_init__(self) -> None:
        words.require("state of a run", self.state, words.RUN_STATES)


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonRow:
    """A comparison in short: runs of several configurations on the same work. Counted from its runs, not stored."""

    comparison: str
    """Its id."""
    name: str
    """The job's name."""
    kind: str
    """cpu, cuda, emulated or simulated."""
    created_at: float
    """Its first run was queued, unix seconds."""
    runs: int
    """Runs so far."""
    finished: int
    """Of them, those that made all their steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One row of the mailbox: what somebody asked for and what became of it."""

    id: int
    """Given by the database, in the order of sending."""
    run_id: str | None
    """The run it is for; None for a launch that leaves naming to the engine."""
    kind: str
    """One of `words.COMMAND_KINDS`."""
    payload: dict[str, Any] = field(metadata=json_column("payload"))
    """What is asked for, by kind."""
    who: str
    """Who sent it."""
    created_at: float
    """Sent, unix seconds."""
    expires_at: float | None
    """When it may no longer be accepted, unix seconds; None for never."""
    idem_key: str
    """Sending the same key again is the same command."""
    expected_config_version: int | None
    """The run's config_version that the sender saw; None for any."""
    expected_effect: str | None
    """What the sender was told would happen, one sentence."""
    state: str
    """One of `words.COMMAND_STATES`."""
    answer: str | None
    """What the engine says to it, one sentence."""
    effective_step: int | None
    """First step that it governs."""
    effective_version: int | None
    """Version of the weights at which it was applied."""
    accepted_at: float | None
    """Unix seconds."""
    applied_at: float | None
    """Unix seconds."""
    result: dict[str, Any] | None = field(metadata=json_column("result"))
    """What applying it made, such as a checkpoint's path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterStats:
    """How the telemetry writer keeps up."""

    rows_written: int
    """Rows committed since it was opened (raw pieces, rollup bins and everything else)."""
    spans_dropped: int
    """Raw spans (pieces of at most 60 s) not stored because the queue was full; their rollups are kept."""
    queue_depth: int
    """Rows waiting."""
    flush_lag_s: float
    """Age of the oldest waiting row, seconds; 0 when none waits."""
    thread_cpu_s: float
    """CPU seconds of the writer thread."""
