"""The job model. Every field says its unit; what this version cannot run yet is refused here, by name."""

from __future__ import annotations

import os
import re
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator

ARMS_AVAILABLE = ("no_borrow", "colocated")
"""Arms this version runs; the other names of the design are known and refused by name."""

ARMS_PLANNED = ("rollout_on_train", "train_on_rollout", "opportunistic", "bidirectional_paper", "bidirectional")

MAX_STALENESS = 16.0
"""Above this a group would be trained that many versions late: nobody has shown that to learn."""

OVERSUBSCRIBED_WORKERS_PER_CORE = 4
"""More than this and a worker's start-up alone outlasts a small run."""

Scalar = int | float | str | bool


class Strict(BaseModel):
    """Unknown keys are errors, true is no number and infinity no value; nothing rewrites a job at run time."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _true_is_no_number(cls, value: Any, info: ValidationInfo) -> Any:
        kinds = get_args(annotation := cls.model_fields[str(info.field_name)].annotation) or (annotation,)
        if isinstance(value, bool) and bool not in kinds and (int in kinds or float in kinds):
            raise ValueError(f"must be a number, got {value!r}")
        return value


def _one_of(value: str, allowed: tuple[str, ...]) -> str:
    if value not in allowed:
        raise ValueError(f"must be one of {', '.join(allowed)}, got {value!r}")
    return value


class Partition(Strict):
    """Devices of the RollPool and of the TrainPool; written `rollout:train`, rollout first."""

    rollout: int = Field(ge=1)
    train: int = Field(ge=1)

    def __str__(self) -> str:
        return f"{self.rollout}:{self.train}"

    @property
    def total(self) -> int:
        return self.rollout + self.train


def _partition(value: Any) -> Any:
    if value is None or value == "auto":
        return "auto"
    if isinstance(value, str) and (match := re.fullmatch(r"(\d+):(\d+)", value.strip())):
        return {"rollout": int(match[1]), "train": int(match[2])}
    if not isinstance(value, dict | Partition):
        raise ValueError(f'must be "auto" or "ROLLOUT:TRAIN" such as "12:4", got {value!r}')
    return value


class WarmStartConfig(Strict):
    """Supervised steps before GRPO, for the built-in model only (it would otherwise know no answer at all)."""

    steps: int = Field(520, ge=0)
    """Optimizer steps in all; 0 starts from random weights."""
    worked_only_steps: int = Field(460, ge=0)
    """Steps at the start that show worked answers only; the rest mixes in bare answers."""
    worked_share: float = Field(0.25, ge=0, le=1)
    """Share of worked answers in the mixture."""
    batch: int = Field(64, ge=1)
    """Items per step."""
    learning_rate: float = Field(3e-3, gt=0)


class ModelConfig(Strict):
    source: str = "builtin:tiny"
    """`builtin:tiny`, or a local folder that `AutoModelForCausalLM.from_pretrained` loads."""
    dtype: Literal["float32"] = "float32"
    """fp32 on CPUs: matrix products in bf16 are slower there by an order of magnitude."""
    warm_start: WarmStartConfig = WarmStartConfig()

    @field_validator("source")
    @classmethod
    def _source(cls, value: str) -> str:
        if value.startswith("builtin:"):
            return _one_of(value, ("builtin:tiny",))
        if not value.strip():
            raise ValueError("must be builtin:tiny or a local model folder, got ''")
        return value


class TaskConfig(Strict):
    source: str = "reasoning_gym:chain_sum"
    """`reasoning_gym:DATASET`."""
    params: dict[str, Scalar | list[Scalar | list[Scalar]]] = Field(default_factory=dict)
    """Keyword arguments of the reasoning-gym data set."""
    reward: str = "scorer"
    """`scorer`: 1 iff the data set's own scorer gives 1.0; `exact`: 1 iff the answer is the text itself."""
    answer_after: str | None = None
    """Score what follows the single occurrence of this text; an answer without it, or with two, earns 0."""
    items: int = Field(20_000, ge=1)
    """Training items generated from the seed."""
    shuffle: bool = True
    epochs: int | None = Field(None, ge=1)
    """Passes over the items before the run ends by itself; null: as many as the steps need."""

    @field_validator("source")
    @classmethod
    def _source(cls, value: str) -> str:
        kind, _, name = value.partition(":")
        if kind != "reasoning_gym" or not name:
            raise ValueError(f"must be reasoning_gym:DATASET, such as reasoning_gym:chain_sum, got {value!r}")
        return value

    @field_validator("reward")
    @classmethod
    def _reward(cls, value: str) -> str:
        return _one_of(value, ("scorer", "exact"))


class EvalConfig(Strict):
    every_steps: int = Field(20, ge=0)
    """Steps between held-out evaluations, besides one before the first and one after the last step; 0: only those."""
    items: int = Field(256, ge=0)
    """Held-out items, disjoint from the training items by question; 0 turns evaluation off."""
    greedy: bool = True
    control_prefix: str | None = None
    """First and last evaluation are repeated with answers made to start with this text: a control, reported apart."""


Beta = Annotated[float, Field(ge=0, lt=1)]
"""How much of a running average is kept at each step."""


class AlgorithmConfig(Strict):
    group_size: int = Field(8, ge=2)
    """Responses per prompt."""
    prompts_per_step: int = Field(16, ge=1)
    """Groups per optimizer step (B)."""
    steps: int = Field(100, ge=1)
    learning_rate: float = Field(3e-4, gt=0)
    lr_schedule: str = "constant"
    lr_warmup_steps: int = Field(0, ge=0)
    lr_final_fraction: float = Field(0.0, ge=0, le=1)
    """Fraction of the learning rate that the linear schedule ends at."""
    betas: tuple[Beta, Beta] = (0.9, 0.95)
    weight_decay: float = Field(0.0, ge=0)
    max_grad_norm: float = Field(1.0, gt=0)
    clip_low: float = Field(0.2, ge=0, lt=1)
    clip_high: float = Field(0.28, ge=0)
    kl_coef: float = Field(0.0, ge=0)
    scale_rewards: str = "group"
    correction: str = "tis"
    is_cap: float = Field(2.0, gt=0)
    accept_uncorrected: bool = False

    @field_validator("lr_schedule")
    @classmethod
    def _schedule(cls, value: str) -> str:
        return _one_of(value, ("constant", "linear"))

    @field_validator("scale_rewards")
    @classmethod
    def _scale(cls, value: str) -> str:
        return _one_of(value, ("group", "none"))

    @field_validator("correction")
    @classmethod
    def _correction(cls, value: str) -> str:
        return _one_of(value, ("tis", "none"))


class SamplingConfig(Strict):
    max_response_tokens: int = Field(32, ge=1)
    temperature: float = Field(1.0, gt=0)
    top_p: float = Field(1.0, gt=0, le=1)


class ScheduleConfig(Strict):
    arm: str = "no_borrow"
    staleness: float = Field(1.0, ge=0, le=MAX_STALENESS)
    """Versions a group may be late, fractions included (design.md section 4)."""
    consume: Literal["stream", "whole_batch"] | None = None
    """null follows the arm."""
    in_flight_updates: bool | None = None
    """A replica continues its groups under new weights; null: yes when staleness > 0."""
    max_chunk_groups: int = Field(4, ge=1)
    improvements: dict[str, bool] = Field(default_factory=dict)
    deterministic: bool = False

    @field_validator("arm")
    @classmethod
    def _arm(cls, value: str) -> str:
        if value in ARMS_PLANNED:
            raise ValueError(f"arm {value!r} does not exist yet; available: {', '.join(ARMS_AVAILABLE)}")
        return _one_of(value, ARMS_AVAILABLE)

    @field_validator("deterministic")
    @classmethod
    def _deterministic(cls, value: bool) -> bool:
        if value:
            raise ValueError("deterministic: true does not exist yet; allowed: false")
        return value

    @field_validator("improvements")
    @classmethod
    def _improvements(cls, value: dict[str, bool]) -> dict[str, bool]:
        if value:
            raise ValueError(
                f"improvements belong to the arm bidirectional, which does not exist yet; got {', '.join(value)}"
            )
        return value

    @property
    def consume_resolved(self) -> Literal["stream", "whole_batch"]:
        """The arms of this version take a whole batch unless told to stream (design.md section 5)."""
        return self.consume or "whole_batch"

    @property
    def staleness_resolved(self) -> float:
        """`colocated` is on-policy by construction."""
        return 0.0 if self.arm == "colocated" else self.staleness

    @property
    def in_flight_resolved(self) -> bool:
        return self.staleness_resolved > 0 if self.in_flight_updates is None else self.in_flight_updates


class DevicesConfig(Strict):
    kind: str = "cpu"
    count: int | Literal["auto"] = "auto"
    """Devices of the job; auto: two, or more when the partition names more."""
    partition: Partition | Literal["auto"] = "auto"
    rollout_replica_size: Literal[1] = 1
    """Devices per rollout replica; one core is one replica."""
    train_replica_size: Literal[1] = 1
    rollout_slots: int = Field(64, ge=1)
    """Sequences that a replica takes at once."""
    rollouter: str = "transformers"
    trainer: str = "torch"
    oversubscribe: bool = False
    """Allow up to four workers per core; no speed is claimed there."""
    time_scale: float = Field(1.0, gt=0)
    ray_address: str | None = None

    @field_validator("kind")
    @classmethod
    def _kind(cls, value: str) -> str:
        if value in ("cuda", "emulated"):
            raise ValueError(f"device kind {value!r} does not run yet; available: cpu")
        return _one_of(value, ("cpu",))

    @field_validator("count", mode="before")
    @classmethod
    def _count(cls, value: Any) -> Any:
        if value == "auto" or (isinstance(value, int) and not isinstance(value, bool) and value >= 1):
            return value
        raise ValueError(f'must be "auto" or at least 1, got {value!r}')

    @field_validator("partition", mode="before")
    @classmethod
    def _partition(cls, value: Any) -> Any:
        return _partition(value)

    @field_validator("rollouter")
    @classmethod
    def _rollouter(cls, value: str) -> str:
        return _one_of(value, ("transformers",))

    @field_validator("trainer")
    @classmethod
    def _trainer(cls, value: str) -> str:
        return _one_of(value, ("torch",))


class CheckpointConfig(Strict):
    every_steps: int = Field(50, ge=0)
    """Steps between checkpoints besides the one at the end; 0: only that one."""
    keep: int = Field(3, ge=1)
    """Newest checkpoints kept per run."""
    snapshot_max_bytes: int = Field(2_000_000_000, ge=0)

    @field_validator("snapshot_max_bytes", mode="before")
    @classmethod
    def _bytes(cls, value: Any) -> Any:
        return int(value) if isinstance(value, float) and value.is_integer() else value


NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"


class Job(Strict):
    """A whole job file. Construct through `load_job` or `parse_job`, which explain what is wrong."""

    name: str = Field("job", pattern=NAME_PATTERN)
    seed: int = Field(0, ge=0, lt=2**31)
    model: ModelConfig = ModelConfig()
    task: TaskConfig = TaskConfig()
    eval: EvalConfig = EvalConfig()
    algorithm: AlgorithmConfig = AlgorithmConfig()
    sampling: SamplingConfig = SamplingConfig()
    schedule: ScheduleConfig = ScheduleConfig()
    devices: DevicesConfig = DevicesConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    profile: dict[str, Any] | None = None

    @model_validator(mode="after")
    def _across(self) -> Job:
        schedule, devices, algorithm = self.schedule, self.devices, self.algorithm
        if schedule.staleness_resolved > 0 and algorithm.correction == "none" and not algorithm.accept_uncorrected:
            raise ValueError(
                f"schedule.staleness {schedule.staleness} with algorithm.correction 'none' trains on stale samples as "
                "if they were fresh; use correction: tis, staleness: 0, or accept_uncorrected: true"
            )
        if schedule.in_flight_updates and schedule.staleness_resolved == 0:
            raise ValueError("schedule.in_flight_updates true is impossible at staleness 0; allowed: false or null")
        if schedule.arm == "colocated":
            if devices.partition != "auto":
                raise ValueError(
                    f"devices.partition '{devices.partition}' has no meaning for arm 'colocated', which has no pools; "
                    "allowed: auto"
                )
            if schedule.consume == "stream":
                raise ValueError("schedule.consume 'stream' has no meaning for arm 'colocated'; allowed: whole_batch")
        elif self.device_count < 2:
            raise ValueError(
                f"devices.count {devices.count} leaves no device for one of the pools; allowed: at least 2"
            )
        if isinstance(devices.partition, Partition) and devices.count not in ("auto", devices.partition.total):
            raise ValueError(
                f"devices.partition '{devices.partition}' needs {devices.partition.total} devices, devices.count says "
                f"{devices.count}"
            )
        if devices.rollout_slots < algorithm.group_size:
            raise ValueError(
                f"devices.rollout_slots {devices.rollout_slots} cannot hold one group of algorithm.group_size "
                f"{algorithm.group_size}"
            )
        if self.model.warm_start.worked_only_steps > self.model.warm_start.steps:
            raise ValueError(
                f"model.warm_start.worked_only_steps {self.model.warm_start.worked_only_steps} is more than "
                f"model.warm_start.steps {self.model.warm_start.steps}"
            )
        if self.profile is not None:
            raise ValueError("profile is read by emulated and simulated devices, which do not exist yet; allowed: null")
        epochs = self.task.epochs
        if epochs is not None and algorithm.steps * algorithm.prompts_per_step > epochs * self.task.items:
            raise ValueError(
                f"algorithm.steps {algorithm.steps} x prompts_per_step {algorithm.prompts_per_step} needs more prompts "
                f"than task.epochs {epochs} x task.items {self.task.items}"
            )
        return self

    @property
    def device_count(self) -> int:
        """Devices the job takes."""
        devices = self.devices
        if isinstance(devices.partition, Partition):
            return devices.partition.total
        return 2 if devices.count == "auto" else devices.count

    @property
    def partition(self) -> Partition | None:
        """Resolved partition; null for `colocated`. `auto` halves the devices, the odd one to rollout, until the
        planner can do better."""
        if self.schedule.arm == "colocated":
            return None
        if isinstance(self.devices.partition, Partition):
            return self.devices.partition
        train = self.device_count // 2
        return Partition(rollout=self.device_count - train, train=train)

    def check_machine(self, cores: int) -> None:
        """Raise ValueError when this machine's cores cannot hold the job's workers."""
        need = self.device_count
        if need <= cores:
            return
        limit = cores * OVERSUBSCRIBED_WORKERS_PER_CORE
        if not self.devices.oversubscribe:
            raise ValueError(
                f"the job takes {need} devices and this machine has {cores} cores; use fewer devices, or "
                f"devices.oversubscribe: true for up to {limit} workers without any claim about speed"
            )
        if need > limit:
            raise ValueError(
                f"the job takes {need} devices; oversubscribed, this machine's {cores} cores hold at most {limit}"
            )


def usable_cores() -> list[int]:
    """Cores this process may run on."""
    return sorted(os.sched_getaffinity(0))
