"""The job model. Every field says its unit; whether this version can run a valid job here is asked in `runnable`."""

from __future__ import annotations

import os
import re
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from engine.config.allowed import Told, Words
from engine.config.errors import unknown_key, written
from engine.config.learning import AlgorithmConfig, EvalConfig, SamplingConfig
from engine.config.model import ModelConfig
from engine.config.profile import ProfileConfig
from engine.config.rollouter import ROLLOUTERS
from engine.config.strict import Strict
from engine.config.task import TaskConfig
from planner.policy.arms import ARMS, LENDING, consume_of
from planner.policy.improvements import DEFAULT, IMPROVEMENTS, Improvements

BORROWING_ARMS = LENDING
"""Arms that lend devices, so that each pool must be able to host the other role."""

KINDS_AVAILABLE = ("cpu", "emulated")
"""Kinds of device that run live."""

KINDS_PLANNED = ("cuda",)
"""Kinds of device that a job may name, to plan and simulate it, and that do not run yet."""

MAX_STALENESS = 16.0
"""Above this a group would be trained that many versions late: nobody has shown that to learn."""

MAX_LEASE_S = 3600.0
"""A lease that must last longer than an hour is a change of the partition."""

OVERSUBSCRIBED_WORKERS_PER_CORE = 4
"""More than this and a worker's start-up alone outlasts a small run."""


MAX_EMULATED_DEVICES = 1024
"""The engine decides for all of them in one process."""

MIN_TIME_SCALE, MAX_TIME_SCALE = 1e-3, 10.0
"""A thousand times faster, and the engine's own milliseconds would be seconds of the model; slower is no use."""


class Partition(Strict):
    """Devices of the RollPool and of the TrainPool; written `rollout:train`, rollout first."""

    rollout: int = Field(ge=1)
    train: int = Field(ge=1)

    def __str__(self) -> str:
        return f"{self.rollout}:{self.train}"

    @property
    def total(self) -> int:
        return self.rollout + self.train


def _splits(devices: int) -> str:
    """The ways to split so many devices, for people."""
    if devices < 2:
        return "at least 2 devices"
    return "1:1" if devices == 2 else f"1:{devices - 1} to {devices - 1}:1"


def _partition(value: Any) -> Any:
    if value is None or value == "auto":
        return "auto"
    if isinstance(value, str) and (match := re.fullmatch(r"(\d+):(\d+)", value.strip())):
        return {"rollout": int(match[1]), "train": int(match[2])}
    if not isinstance(value, dict | Partition):
        raise ValueError(f'must be "auto" or "ROLLOUT:TRAIN" such as "12:4", got {written(value)}')
    return value


class BorrowConfig(Strict):
    """What an arm that lends may lend."""

    rollout_on_train: bool = True
    """Trainers' devices may generate."""
    train_on_rollout: bool = True
    """Rollouters' devices may train."""
    lend_cap: int | None = Field(None, ge=0)
    """Most devices lent at the same time, of both pools together; null: as many as pay."""
    min_lease_s: float = Field(0.0, ge=0, le=MAX_LEASE_S)
    """Seconds that a lease lasts at least, unless an operator ends it or its device dies."""


class ScheduleConfig(Strict):
    arm: Annotated[str, Words(ARMS)] = "no_borrow"
    staleness: float = Field(1.0, ge=0, le=MAX_STALENESS)
    """Versions a group may be late, fractions included (design.md section 4)."""
    consume: Literal["stream", "whole_batch"] | None = None
    """null follows the arm."""
    in_flight_updates: bool | None = None
    """A replica continues its groups under new weights; null: yes when staleness > 0."""
    max_chunk_groups: int = Field(4, ge=1)
    """Groups of a real trainer's largest chunk; simulated and emulated ones obey the profile."""
    improvements: dict[str, bool] = Field(default_factory=dict)
    """Changes of the arm `bidirectional` over the published rules, by name; those not named are on."""
    deterministic: bool = False
    """Slower: at staleness 0 every arm and partition gives bitwise the same parameters and answers."""
    borrow: BorrowConfig = BorrowConfig()
    record_states: bool = False
    """Keep every state that the policy decided on, not only those behind a decision about a lease."""

    @field_validator("improvements")
    @classmethod
    def _improvements(cls, value: dict[str, bool]) -> dict[str, bool]:
        unknown = [name for name in value if name not in IMPROVEMENTS]
        if unknown:
            raise ValueError("; ".join(unknown_key(name, IMPROVEMENTS, what="improvement") for name in unknown))
        return value

    @property
    def improvements_resolved(self) -> Improvements:
        """Changes of `bidirectional` that are on."""
        improvements = DEFAULT
        for name, on in self.improvements.items():
            improvements = improvements.with_(name) if on else improvements.without(name)
        return improvements

    @property
    def consume_resolved(self) -> Literal["stream", "whole_batch"]:
        """`bidirectional` streams and the other arms take a whole batch, unless told otherwise (design section 5)."""
        return consume_of(self.arm, self.consume)

    @property
    def staleness_resolved(self) -> float:
        """`colocated` is on-policy by construction."""
        return 0.0 if self.arm == "colocated" else self.staleness

    @property
    def in_flight_resolved(self) -> bool:
        return self.staleness_resolved > 0 if self.in_flight_updates is None else self.in_flight_updates


class DevicesConfig(Strict):
    kind: Annotated[str, Words(KINDS_AVAILABLE + KINDS_PLANNED)] = "cpu"
    count: int | Literal["auto"] = "auto"
    """Devices of the job; auto: two, or more when the partition names more."""
    partition: Partition | Literal["auto"] = "auto"
    rollout_replica_size: int = Field(1, ge=1)
    """Devices per rollout replica; a core is always a replica of its own."""
    train_replica_size: int = Field(1, ge=1)
    """Devices per trainer replica."""
    rollout_slots: int = Field(64, ge=1)
    """Sequences that a real replica takes at once; simulated and emulated ones obey the profile."""
    rollouter: Annotated[str, Words(ROLLOUTERS)] = "auto"
    """What generates: `transformers`, `vllm` (an extra), or auto: the one that is faster on this kind of device."""
    trainer: Annotated[str, Words(("torch",))] = "torch"
    oversubscribe: bool = False
    """Allow up to four workers per core; no speed is claimed there."""
    time_scale: float = Field(1.0, ge=MIN_TIME_SCALE, le=MAX_TIME_SCALE)
    """Seconds that an emulated device takes for one second of its profile; below 1 it runs faster."""
    ray_address: str | None = None

    @field_validator("count", mode="before")
    @classmethod
    def _count(cls, value: Any) -> Any:
        if value == "auto" or (isinstance(value, int) and not isinstance(value, bool) and value >= 1):
            return value
        raise ValueError(f'must be "auto" or a whole number of at least 1, got {written(value)}')

    @field_validator("partition", mode="before")
    @classmethod
    def _partition(cls, value: Any) -> Any:
        return _partition(value)


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

    name: Annotated[str, Told("1 to 64 letters, digits, dots, underscores or hyphens, a letter or digit first")] = (
        Field("job", pattern=NAME_PATTERN)
    )
    seed: int = Field(0, ge=0, lt=2**31)
    model: ModelConfig = ModelConfig()
    task: TaskConfig = TaskConfig()
    eval: EvalConfig = EvalConfig()
    algorithm: AlgorithmConfig = AlgorithmConfig()
    sampling: SamplingConfig = SamplingConfig()
    schedule: ScheduleConfig = ScheduleConfig()
    devices: DevicesConfig = DevicesConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    profile: ProfileConfig | None = None
    """Speeds and costs that `plan` and `simulate` go by; null: not known."""

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
        if isinstance(devices.partition, Partition) and devices.count != "auto":
            needed = devices.partition.total
            if devices.count != needed:
                raise ValueError(
                    f"devices.partition '{devices.partition}' needs {needed} devices, devices.count says "
                    f"{devices.count}; allowed: {_splits(devices.count)}, or devices.count {needed} or auto"
                )
        if devices.rollout_slots < algorithm.group_size:
            raise ValueError(
                f"devices.rollout_slots {devices.rollout_slots} cannot hold one group of algorithm.group_size "
                f"{algorithm.group_size}; allowed: at least as many"
            )
        if algorithm.overlong_tokens >= self.sampling.max_response_tokens:
            raise ValueError(
                f"algorithm.overlong_tokens {algorithm.overlong_tokens} leaves no length without a penalty; allowed: "
                f"less than sampling.max_response_tokens {self.sampling.max_response_tokens}"
            )
        if self.model.warm_start.worked_only_steps > self.model.warm_start.steps:
            raise ValueError(
                f"model.warm_start.worked_only_steps {self.model.warm_start.worked_only_steps} is more than "
                f"model.warm_start.steps {self.model.warm_start.steps}; allowed: at most as many"
            )
        if schedule.deterministic and self.model.lora is not None and self.model.lora.dropout:
            raise ValueError(
                f"model.lora.dropout {self.model.lora.dropout} is random, and schedule.deterministic true allows "
                "nothing that is; allowed: dropout 0"
            )
        if self.profile is not None and self.profile.rollout.slots < algorithm.group_size:
            raise ValueError(
                f"profile.rollout.slots {self.profile.rollout.slots} cannot hold one group of algorithm.group_size "
                f"{algorithm.group_size}; allowed: at least as many"
            )
        epochs, known = self.task.epochs, self.task.items is not None or not self.task.reads_files
        if known and epochs is not None and algorithm.steps * algorithm.prompts_per_step > epochs * self.task.size:
            raise ValueError(
                f"algorithm.steps {algorithm.steps} x prompts_per_step {algorithm.prompts_per_step} needs more prompts "
                f"than task.epochs {epochs} x task.items {self.task.size}; allowed: at most "
                f"{epochs * self.task.size} in all, or task.epochs null"
            )
        return self

    @property
    def emulated(self) -> bool:
        """Its devices wait out the times of its profile and learn nothing."""
        return self.devices.kind == "emulated"

    @property
    def slots(self) -> int:
        """Sequences that a live rollout replica takes at once: emulated ones obey the profile."""
        if self.emulated and self.profile is not None:
            return self.profile.rollout.slots
        return self.devices.rollout_slots

    @property
    def max_chunk_groups(self) -> int:
        """Groups of a live trainer's largest chunk: emulated ones obey the profile."""
        if self.emulated and self.profile is not None:
            return self.profile.train.max_chunk_groups
        return self.schedule.max_chunk_groups

    @property
    def device_count(self) -> int:
        """Devices the job takes."""
        devices = self.devices
        if isinstance(devices.partition, Partition):
            return devices.partition.total
        return 2 if devices.count == "auto" else devices.count

    @property
    def partition(self) -> Partition | None:
        """Resolved partition of a live run; null for `colocated`. `auto` halves the devices, the odd one to rollout:
        without a profile the planner knows nothing better."""
        if self.schedule.arm == "colocated":
            return None
        if isinstance(self.devices.partition, Partition):
            return self.devices.partition
        train = self.device_count // 2
        return Partition(rollout=self.device_count - train, train=train)

    def check_machine(self, cores: int) -> None:
        """Raise ValueError when this machine's cores cannot hold the job's workers."""
        need = self.device_count
        if self.emulated:
            if need > MAX_EMULATED_DEVICES:
                raise ValueError(f"the job takes {need} emulated devices; allowed: at most {MAX_EMULATED_DEVICES}")
            return
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
