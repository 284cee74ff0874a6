"""Turns what a run lives through into rows for the telemetry writer. Decides nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engine.learning.stats import ChunkStats, LagStats
from engine.learning.trainer import StepStats
from engine.ledger_check import Account
from engine.run.book import Group, StepEntry
from engine.run.idle_log import IdleLog
from engine.worker import messages as msg
from storage.records import (
    DecisionRow,
    DeviceRow,
    DeviceState,
    EvalRow,
    GroupRow,
    LeaseRow,
    LogRow,
    Span,
    StateRow,
    StepRow,
)
from storage.writer import TelemetryWriter


class Recorder:
    """Writes the rows of one run."""

    def __init__(self, writer: TelemetryWriter, run_id: str) -> None:
        self._writer = writer
        self.run_id = run_id
        self._idle: dict[int, IdleLog] = {}
        self.account = Account()
        """Running sums of all spans, for the check that closes the run."""

    def receipt(self) -> int:
        """Stands for everything recorded so far."""
        return self._writer.receipt()

    def stored(self, receipt: int) -> bool:
        """Would everything recorded before the receipt outlive the engine?"""
        return self._writer.stored(receipt)

    def run(self, **columns: Any) -> None:
        """Insert or change the run's own row."""
        self._writer.run(self.run_id, **columns)

    def devices(self, rows: Sequence[DeviceRow]) -> None:
        self._writer.devices(self.run_id, list(rows))

    def log(self, at: float, text: str, *, level: str = "info", device: int | None = None) -> None:
        self._writer.log(LogRow(run_id=self.run_id, at=at, level=level, text=text, device=device))

    # -- device time --------------------------------------------------------------------------------------------------

    def idle_cause(self, device: int, now: float, cause: str | None) -> None:
        """Why the device has nothing to do from `now` on; None when it has work."""
        self._idle.setdefault(device, IdleLog()).note(now, cause)

    def delivery(self, device: int, delivery: msg.Delivery) -> None:
        """Store a worker's closed spans and its open one."""
        log = self._idle.setdefault(device, IdleLog())
        spans: list[Span] = []
        for span in delivery.spans:
            common: dict[str, Any] = {
                "run_id": self.run_id,
                "device": device,
                "version": span.version,
                "step": span.step,
            }
            if span.kind != "idle":
                spans.append(
                    Span(
                        **common, t0=span.t0, t1=span.t1, kind=span.kind, role=span.role, cpu_s=span.cpu_s, ref=span.ref
                    )
                )
                continue
            causes = log.cut(span.t0, span.t1)
            if span.ref == msg.REWARDS:
                causes = [(span.t0, span.t1, "waiting_for_rewards")]
            for start, end, cause in causes:
                cpu_s = span.cpu_s * (end - start) / (span.t1 - span.t0)
                spans.append(Span(**common, t0=start, t1=end, kind="idle", cause=cause, cpu_s=cpu_s))
        if spans:
            self._writer.spans(spans)
            self.account.add(spans)
        opened = delivery.open
        state = DeviceState(
            device=device,
            kind=opened.kind,
            role=opened.role,
            cause=log.now() if opened.kind == "idle" else None,
            version=opened.version,
            step=opened.step,
            since=opened.since,
            seen_at=delivery.at,
        )
        self._writer.device_states(self.run_id, [state])

    def gap(self, device: int, until: float) -> None:
        """Between the last sign of a worker that died and its successor nothing was done."""
        known = self.account.devices.get(device)
        if known is None or until <= known.until:
            return
        span = Span(
            run_id=self.run_id, device=device, t0=known.until, t1=until, kind="idle", cause="failure", cpu_s=0.0
        )
        self._writer.spans([span])
        self.account.add([span])

    # -- leases -------------------------------------------------------------------------------------------------------

    def lease(self, row: LeaseRow) -> None:
        """A lease as it is now."""
        self._writer.leases([row])

    def decisions(self, rows: Sequence[DecisionRow]) -> None:
        self._writer.decisions(rows)

    def states(self, rows: Sequence[StateRow]) -> None:
        self._writer.states(rows)

    # -- learning -----------------------------------------------------------------------------------------------------

    def step(self, step: StepEntry, row: StepRow) -> None:
        """A made step and the groups it consumed."""
        self._writer.step(row)
        self._writer.groups([self._consumed(group, step.version) for group in step.taken])

    def step_again(self, row: StepRow) -> None:
        """A step's row once more, with what was learnt after it ended."""
        self._writer.step(row)

    def excluded(self, group: Group, reason: str) -> None:
        self._writer.groups([self._row(group, state="excluded", reason=reason)])

    def eval(self, *, step: int, name: str, accuracy: float, items: int, failed: int, at: float) -> None:
        self._writer.eval(
            EvalRow(run_id=self.run_id, step=step, name=name, accuracy=accuracy, items=items, failed=failed, at=at)
        )

    def _consumed(self, group: Group, version: int) -> GroupRow:
        return self._row(group, state="consumed", step=version + 1, lag=version - group.version)

    def _row(self, group: Group, **columns: Any) -> GroupRow:
        finished = group.finished
        assert finished is not None, f"group {group.group_id} is recorded before it was finished"
        return GroupRow(
            run_id=self.run_id,
            group_id=group.group_id,
            epoch=finished.epoch,
            item=finished.item,
            version=group.version,
            bound=group.bound.staleness,
            device=group.device,
            reward_mean=finished.reward_mean,
            started_at=finished.started_at,
            finished_at=finished.finished_at,
            prompt=finished.prompt,
            responses=list(finished.responses),
            **columns,
        )


def step_row(
    run_id: str, step: StepEntry, done: msg.StepDone, *, staleness: float, now: float, learns: bool = True
) -> StepRow:
    """The row of a made step. Tokens are those of the groups it consumed, each response with its prompt.

    `learns`: False for emulated devices, of which nothing that is learnt can be told.
    """
    stats = step.stats
    metrics: dict[str, Any] = {
        **_correction(stats.over_lags),
        "reference_kl": stats.reference_kl_sum / stats.tokens if stats.tokens else None,
        "learning_rate": done.stats.learning_rate,
        "trained_tokens": stats.tokens,
        "merge_s": done.merge_s,
        "snapshot_s": done.snapshot_s,
        "by_lag": {str(lag): _part(of_lag) for lag, of_lag in sorted(stats.by_lag.items())},
        "by_role": {role: _part(of_role.over_lags) for role, of_role in step.by_role.items()},
    }
    if rewards := _means(step.taken):
        metrics["rewards"] = rewards
    if not learns:
        metrics = {name: metrics[name] for name in ("trained_tokens", "merge_s", "snapshot_s")}
    return StepRow(
        run_id=run_id,
        step=step.version + 1,
        t_start=step.began_at,
        t_end=now,
        groups=len(step.taken),
        prompt_tokens=stats.prompt_tokens,
        response_tokens=stats.response_tokens,
        reward_mean=stats.reward_mean if learns else None,
        loss=_loss(stats, done.stats) if learns else None,
        grad_norm=done.stats.grad_norm if learns else None,
        entropy=stats.entropy if learns else None,
        response_len_mean=stats.response_len_mean,
        lag_max=stats.lag_max,
        lag={lag: of_lag.groups for lag, of_lag in sorted(stats.by_lag.items())},
        no_signal=stats.no_signal,
        staleness=staleness,
        metrics=metrics,
    )


def _correction(sums: LagStats) -> dict[str, float | None]:
    """How far the rollouters' policy was from the trainer's over these groups, and what correcting for it took."""
    return {
        "mismatch_kl": sums.mismatch_kl,
        "clip_share": sums.clip_share,
        "capped_share": sums.capped_share,
        "ess": sums.effective_sample_share,
    }


def _part(sums: LagStats) -> dict[str, float | None]:
    """The same for a part of the step's groups, with how many they are."""
    return {"groups": sums.groups, **_correction(sums)}


def _loss(stats: ChunkStats, made: StepStats) -> float | None:
    """What the step minimised: its summed token losses over what its gradient was divided by."""
    return None if made.divisor is None else stats.loss_sum / made.divisor


def _means(groups: Sequence[Group]) -> dict[str, float]:
    """Reward -> mean over the responses of these groups, before weights; empty where the job has a single one."""
    parts = [
        response["parts"]
        for group in groups
        if group.finished is not None
        for response in group.finished.responses
        if "parts" in response
    ]
    names = parts[0] if parts else {}
    return {name: sum(part[name] for part in parts) / len(parts) for name in names}
