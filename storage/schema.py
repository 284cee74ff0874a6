"""The two databases' tables as migrations, oldest first. A migration that has been released is never edited: add one.

`telemetry.db` belongs to the engine; `control.db` is the mailbox, written by everybody. Tables on the hot path are made
in SQL because sqlite-utils cannot say WITHOUT ROWID.
"""

from __future__ import annotations

from sqlite_utils import Database
from sqlite_utils.migrations import Migrations

TELEMETRY = Migrations("telemetry")
CONTROL = Migrations("control")


@TELEMETRY()
def m001_runs_and_engines(db: Database) -> None:
    db.table("engine").create(
        {
            "engine_id": str,
            "pid": int,
            "host": str,
            "started_at": float,
            "beat_at": float,
            "state": str,
            "version": str,
            "cores": int,
            "cpu_s": float,
            "ray_cpu_s": float,
            "spans_dropped": int,
            "rows_written": int,
            "queue_depth": int,
            "flush_lag_s": float,
        },
        pk="engine_id",
    )
    db.table("runs").create(
        {
            "run_id": str,
            "name": str,
            "kind": str,
            "state": str,
            "arm": str,
            "consume": str,
            "staleness": float,
            "partition": str,
            "seed": int,
            "job": str,
            "base_dir": str,
            "who": str,
            "engine_id": str,
            "created_at": float,
            "started_at": float,
            "training_at": float,
            "ended_at": float,
            "measured_until": float,
            "steps_target": int,
            "start_step": int,
            "steps": int,
            "parent_run_id": str,
            "error": str,
            "progress": str,
            "progress_fraction": float,
            "config_version": int,
            "params_sha256": str,
            "excluded_json": str,
            "ledger_json": str,
            "result_json": str,
            "staleness_effective_step": int,
            "buffer_groups": int,
            "in_flight_groups": int,
        },
        pk="run_id",
        not_null={"name", "kind", "state", "arm", "job", "excluded_json"},
        defaults={"name": "", "kind": "", "state": "queued", "arm": "", "job": "", "excluded_json": "{}"},
    )
    db.table("runs").create_index(["created_at"])


@TELEMETRY()
def m002_devices_and_their_time(db: Database) -> None:
    db.table("devices").create(
        {"run_id": str, "device": int, "node": str, "pool": str, "core": int, "pid": int}, pk=("run_id", "device")
    )
    db.table("device_state").create(
        {
            "run_id": str,
            "device": int,
            "kind": str,
            "role": str,
            "cause": str,
            "version": int,
            "step": int,
            "since": float,
            "seen_at": float,
        },
        pk=("run_id", "device"),
    )
    db.execute(
        "CREATE TABLE spans (run_id TEXT NOT NULL, t0 REAL NOT NULL, device INTEGER NOT NULL, t1 REAL NOT NULL,"
        " kind TEXT NOT NULL, role TEXT, cause TEXT, version INTEGER, step INTEGER, cpu_s REAL, ref TEXT,"
        " PRIMARY KEY (run_id, t0, device)) WITHOUT ROWID"
    )
    db.execute("CREATE INDEX spans_by_device ON spans (run_id, device, t0)")
    db.execute(
        "CREATE TABLE rollups (run_id TEXT NOT NULL, res INTEGER NOT NULL, bin INTEGER NOT NULL,"
        " layout INTEGER NOT NULL, data BLOB NOT NULL, PRIMARY KEY (run_id, res, bin)) WITHOUT ROWID"
    )
    # Where raw spans are gone, so that a reader knows when only the rollups are exact.
    db.table("raw_missing").create(
        {"run_id": str, "reason": str, "t0": float, "t1": float, "spans": int}, pk=("run_id", "reason")
    )


@TELEMETRY()
def m003_steps_and_groups(db: Database) -> None:
    db.table("steps").create(
        {
            "run_id": str,
            "step": int,
            "t_start": float,
            "t_end": float,
            "groups": int,
            "prompt_tokens": int,
            "response_tokens": int,
            "reward_mean": float,
            "loss": float,
            "grad_norm": float,
            "entropy": float,
            "response_len_mean": float,
            "lag_max": int,
            "lag_json": str,
            "no_signal": int,
            "staleness": float,
            "metrics_json": str,
        },
        pk=("run_id", "step"),
    )
    db.table("groups").create(
        {
            "run_id": str,
            "group_id": int,
            "epoch": int,
            "item": int,
            "state": str,
            "reason": str,
            "step": int,
            "version": int,
            "lag": int,
            "bound": float,
            "device": int,
            "reward_mean": float,
            "started_at": float,
            "finished_at": float,
            "prompt": str,
            "responses": str,
        },
        pk=("run_id", "group_id"),
    )
    db.table("groups").create_index(["run_id", "step"])
    db.table("evals").create(
        {"run_id": str, "step": int, "name": str, "accuracy": float, "items": int, "at": float},
        pk=("run_id", "step", "name"),
    )
    db.table("logs").create({"id": int, "run_id": str, "at": float, "device": int, "level": str, "text": str}, pk="id")
    db.table("logs").create_index(["run_id", "id"])


@TELEMETRY()
def m004_leases_and_decisions(db: Database) -> None:
    db.table("decisions").create(
        {
            "run_id": str,
            "id": int,
            "at": float,
            "step": int,
            "action": str,
            "direction": str,
            "block": int,
            "lease": int,
            "gain_s": float,
            "cost_s": float,
            "reason": str,
            "inputs_json": str,
        },
        pk=("run_id", "id"),
    )
    # Refusals are counted at every refresh of a page; without this a long run is scanned for that.
    db.table("decisions").create_index(["run_id", "action", "direction"])
    db.table("leases").create(
        {
            "run_id": str,
            "lease": int,
            "direction": str,
            "block": int,
            "devices_json": str,
            "state": str,
            "reason": str,
            "gain_s": float,
            "cost_s": float,
            "granted_at": float,
            "ready_at": float,
            "working_at": float,
            "ended_at": float,
            "released_at": float,
            "ended_by": str,
            "end_reason": str,
            "groups": float,
            "chunks": int,
            "tokens": int,
            "cpu_s": float,
            "busy_s": float,
            "in_s": float,
            "out_s": float,
            "grad_s": float,
            "phases_json": str,
            "measured_gain_s": float,
            "regret_s": float,
        },
        pk=("run_id", "lease"),
    )
    db.table("leases").create_index(["run_id", "granted_at"])
    db.execute(
        "CREATE TABLE states (run_id TEXT NOT NULL, seq INTEGER NOT NULL, at REAL NOT NULL, data BLOB NOT NULL,"
        " PRIMARY KEY (run_id, seq)) WITHOUT ROWID"
    )
    db.execute("CREATE INDEX states_by_time ON states (run_id, at)")
    db.table("runs").add_column("profile_json", str)
    db.table("runs").add_column("model_error_json", str)
    db.table("runs").add_column("guards_json", str, not_null_default="{}")
    db.table("runs").add_column("deaths", int)


@TELEMETRY()
def m005_comparisons(db: Database) -> None:
    db.table("runs").add_column("comparison", str)
    db.table("runs").add_column("comparison_label", str)
    db.table("runs").add_column("comparison_repeat", int)
    db.table("runs").add_column("comparison_plan_json", str)
    db.table("runs").create_index(["comparison"])


@TELEMETRY()
def m006_emulated_time(db: Database) -> None:
    db.table("runs").add_column("time_scale", float)
    # Runs with one key did the same work per token, in whatever arm: the least of them is the work bound.
    db.table("runs").add_column("work_key", str)
    db.table("runs").create_index(["work_key"])


@TELEMETRY()
def m007_settings(db: Database) -> None:
    # What governs the run now, where that is no longer what its job says.
    db.table("runs").add_column("settings_json", str)


@TELEMETRY()
def m008_decisions_by_time_and_lease(db: Database) -> None:
    # What a moment or a lease led to is asked for from every chart; a long run has a hundred thousand decisions.
    db.table("decisions").create_index(["run_id", "at"])
    db.table("decisions").create_index(["run_id", "lease"])


@TELEMETRY()
def m009_imports(db: Database) -> None:
    # A run that was brought from elsewhere keeps its telemetry as long from then on as others do from their own time.
    db.table("runs").add_column("imported_at", float)


@TELEMETRY()
def m010_foretold_gains(db: Database) -> None:
    # A lease may go on over many steps; its prediction is about the first of them, and is judged by what was won there.
    db.table("leases").add_column("foretold_gain_s", float)


@TELEMETRY()
def m011_failed_items(db: Database) -> None:
    # A share of right answers says little without how many answers could not be judged.
    db.table("evals").add_column("failed", int)


@CONTROL()
def m001_commands_and_settings(db: Database) -> None:
    db.table("commands").create(
        {
            "id": int,
            "run_id": str,
            "kind": str,
            "payload": str,
            "who": str,
            "created_at": float,
            "expires_at": float,
            "idem_key": str,
            "expected_config_version": int,
            "expected_effect": str,
            "state": str,
            "answer": str,
            "effective_step": int,
            "effective_version": int,
            "accepted_at": float,
            "applied_at": float,
            "result": str,
        },
        pk="id",
        not_null={"kind", "payload", "who", "created_at", "idem_key", "state"},
    )
    db.table("commands").create_index(["idem_key"], unique=True)
    db.table("commands").create_index(["state"])
    db.table("commands").create_index(["run_id"])
    db.table("settings").create({"key": str, "value": str, "who": str, "at": float}, pk="key")
    db.table("notes").create({"run_id": str, "text": str, "who": str, "at": float}, pk="run_id")
    db.table("tags").create({"run_id": str, "tag": str, "who": str, "at": float}, pk=("run_id", "tag"))
