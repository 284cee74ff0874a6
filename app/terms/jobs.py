"""The numbers of a job, and what the list of runs shows of each run. Pure text."""

from __future__ import annotations

from app.term import Term

RUNS: dict[str, Term] = {
    "idle_share": Term(
        title="Idle share",
        definition="Share of the devices' known time in which they did nothing useful, for whatever cause.",
        unit="share of device time",
        formula="idle device-seconds / all device-seconds, from the first possible rollout to the last step",
    ),
    "lost_hours": Term(
        title="Lost device-hours",
        definition="Device time that was idle, summed over the devices.",
        unit="device-hours",
        formula="idle device-seconds / 3600",
    ),
    "reward_over_steps": Term(
        title="Reward over steps",
        definition="Mean reward of the run's steps, oldest first, in at most 60 points; each is the mean of as many "
        "steps.",
        unit="reward, as the task scores it",
    ),
    "compared_difference": Term(
        title="Difference to the baseline",
        definition="How much more or less of a figure a run has than the baseline has; none where the baseline has 0.",
        unit="% of the baseline's figure",
        formula="(figure / baseline's figure - 1) * 100",
    ),
    "reward_smoothed": Term(
        title="Reward, mean of ten steps",
        definition="Mean reward of the last ten steps at each step, since one step's is noise.",
        unit="reward, as the task scores it",
    ),
}
"""Name -> term, of past runs."""

JOBS: dict[str, Term] = {
    "job_seed": Term(
        title="Seed",
        definition="What items, sampling and start weights are drawn from; the arms of a comparison share it.",
    ),
    "job_items": Term(
        title="Training items", definition="Items that are generated from the seed to train on.", unit="items"
    ),
    "job_prompts_per_step": Term(
        title="Prompts per step, B",
        definition="Groups that one optimizer step consumes, exactly.",
        unit="groups",
    ),
    "job_group_size": Term(
        title="Responses per prompt",
        definition="Responses of a group; a reward is judged against their mean.",
        unit="responses",
    ),
    "job_steps": Term(title="Steps", definition="Optimizer updates until the run is finished.", unit="steps"),
    "job_learning_rate": Term(title="Learning rate", definition="Of the optimizer, at the start of its schedule."),
    "job_max_response_tokens": Term(
        title="New tokens at most",
        definition="Longest response; what is not finished by then is cut and scored as it is.",
        unit="tokens",
    ),
    "job_temperature": Term(
        title="Temperature",
        definition="Of sampling; both policies of the loss are taken at it. Above 1 answers vary more.",
    ),
    "job_devices": Term(
        title="Devices",
        definition="Devices of both pools together: CPU cores, or emulated ones that take no core.",
        unit="devices",
    ),
    "job_rollout_replica_size": Term(
        title="Devices per rollout replica",
        definition="Devices that together hold one model copy to generate.",
        unit="devices",
    ),
    "job_train_replica_size": Term(
        title="Devices per train replica",
        definition="Devices that together hold one model copy to train.",
        unit="devices",
    ),
    "job_time_scale": Term(
        title="Seconds here for one modelled",
        definition="Wall time that an emulated device takes for a second of its profile; below 1 it runs faster than "
        "what it stands for.",
        unit="seconds per modelled second",
    ),
    "job_rollout_slots": Term(
        title="Sequences per replica",
        definition="Sequences that a rollout replica takes at once; without a bound nothing would be left to lend.",
        unit="sequences",
    ),
    "job_eval_every_steps": Term(
        title="Evaluate every",
        definition="Steps between held-out evaluations, besides one before the first and one after the last step; 0: "
        "only those.",
        unit="steps",
    ),
    "job_eval_items": Term(
        title="Held-out items",
        definition="Items to evaluate on, never trained on; 0 turns evaluation off.",
        unit="items",
    ),
    "job_checkpoint_every_steps": Term(
        title="Checkpoint every",
        definition="Steps between two checkpoints, besides the one at the end; 0: only that one.",
        unit="steps",
    ),
    "job_checkpoint_keep": Term(
        title="Checkpoints kept", definition="Newest checkpoints of a run that stay on disk.", unit="checkpoints"
    ),
}
"""Name -> term, of a job's settings."""

OF_FIELD = {
    "seed": "job_seed",
    "task.items": "job_items",
    "algorithm.prompts_per_step": "job_prompts_per_step",
    "algorithm.group_size": "job_group_size",
    "algorithm.steps": "job_steps",
    "algorithm.learning_rate": "job_learning_rate",
    "sampling.max_response_tokens": "job_max_response_tokens",
    "sampling.temperature": "job_temperature",
    "schedule.arm": "arm",
    "schedule.staleness": "staleness",
    "devices.count": "job_devices",
    "devices.partition": "partition",
    "devices.rollout_replica_size": "job_rollout_replica_size",
    "devices.train_replica_size": "job_train_replica_size",
    "devices.time_scale": "job_time_scale",
    "devices.rollout_slots": "job_rollout_slots",
    "eval.every_steps": "job_eval_every_steps",
    "eval.items": "job_eval_items",
    "checkpoint.every_steps": "job_checkpoint_every_steps",
    "checkpoint.keep": "job_checkpoint_keep",
}
"""Dotted path of a job's setting -> its term."""
