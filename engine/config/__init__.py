"""The job file: one pydantic model that the command line, the engine and the Launch form share.

Pure: it reads text, validates it and explains what is wrong. It starts nothing and imports neither torch nor ray.
"""

from engine.config.errors import JobError
from engine.config.files import apply_settings, check_job, dump_job, load_job, parse_job, parse_setting
from engine.config.job import (
    ARMS,
    BORROWING_ARMS,
    BorrowConfig,
    CheckpointConfig,
    DevicesConfig,
    Job,
    Partition,
    ScheduleConfig,
)
from engine.config.learning import AlgorithmConfig, EvalConfig, SamplingConfig
from engine.config.model import LoraConfig, ModelConfig, SizeConfig, WarmStartConfig
from engine.config.profile import ProfileConfig, to_profile
from engine.config.runnable import check_runnable, improvements_problem
from engine.config.steering import (
    CHANGES,
    Refused,
    change_of,
    changed,
    consume_told,
    setting_names,
    settings_of,
    with_settings,
    written,
)
from engine.config.task import RewardConfig, TaskConfig

__all__ = [
    "ARMS",
    "BORROWING_ARMS",
    "CHANGES",
    "AlgorithmConfig",
    "BorrowConfig",
    "CheckpointConfig",
    "DevicesConfig",
    "EvalConfig",
    "Job",
    "JobError",
    "LoraConfig",
    "ModelConfig",
    "Partition",
    "ProfileConfig",
    "Refused",
    "RewardConfig",
    "SamplingConfig",
    "ScheduleConfig",
    "SizeConfig",
    "TaskConfig",
    "WarmStartConfig",
    "apply_settings",
    "change_of",
    "changed",
    "check_job",
    "check_runnable",
    "consume_told",
    "dump_job",
    "improvements_problem",
    "load_job",
    "parse_job",
    "parse_setting",
    "setting_names",
    "settings_of",
    "to_profile",
    "with_settings",
    "written",
]
