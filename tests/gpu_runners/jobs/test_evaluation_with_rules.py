"""Evaluation with rules in front: what they say stands beside what the model says, and their time is measured."""

import json
from pathlib import Path
from typing import Any

import pytest

from backend.domain.canonical import sha256_hex
from backend.domain.jobs.causal_jobs import EvaluateCausalJob, EvaluateCausalResult
from backend.domain.jobs.runner_jobs import EvaluateJob, EvaluateResult
from gpu_runners.agent.jobs import evaluate_files, evaluate_files_causal
from gpu_runners.models.causal_adapter import to_bytes
from gpu_runners.models.causal_base import CausalBase
from gpu_runners.models.device import detect
from tests.gpu_runners.small_base import make_base, random_adapter
from tests.gpu_runners.small_generative import ANSWERS
from tests.gpu_runners.small_packs import json_rules, label_rules
from tests.gpu_runners.small_task import LABELS, Trained, task_rows

TEXTS = ["three coffee", "the order of tea", "coffee for three", "tea"]


@pytest.fixture(scope="module")
def base_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bases")


@pytest.fixture(scope="module")
def causal_base(base_dir: Path) -> CausalBase:
    return make_base(base_dir / "small-llama")


def lines(texts: list[str]) -> bytes:
    return b"".join(json.dumps({"input": text}).encode() + b"\n" for text in texts)


def answered(base: CausalBase, base_dir: Path, folder: Path, answer: dict[str, Any]) -> EvaluateCausalResult:
    adapter, config = random_adapter(base, seed=3)
    (folder / "inputs").write_bytes(lines(TEXTS))
    (folder / "adapter").write_bytes(to_bytes(adapter))
    job = EvaluateCausalJob(
        base_model=base.name,
        base_model_sha256=base.sha256,
        system="of tea and coffee",
        answer=answer,
        max_new_tokens=40,
        adapter_sha256=sha256_hex(to_bytes(adapter)),
        adapter_config=config.to_json(),
        inputs_sha256="a" * 64,
        rules_sha256="b" * 64 if (folder / "rules").exists() else "",
    )
    done = evaluate_files_causal(job, folder=folder, base_dir=base_dir, emit=lambda event: None)
    return EvaluateCausalResult.from_json(done["result"])


def test_a_causal_base_answers_all_inputs_and_its_rules_those_that_they_know(
    causal_base: CausalBase, base_dir: Path, tmp_path: Path
) -> None:
    plain = answered(causal_base, base_dir, tmp_path, ANSWERS["json"])
    assert (plain.rule_answers, plain.ruled_latency_us) == ([], [])
    (tmp_path / "rules").write_bytes(json_rules("three"))
    ruled = answered(causal_base, base_dir, tmp_path, ANSWERS["json"])
    said = '{"size": "small", "n": 3}'
    assert ruled.rule_answers == [said, None, said, None]
    assert ruled.outputs == plain.outputs
    assert len(ruled.ruled_latency_us) == len(ruled.latency_us) == 4
    assert min(ruled.ruled_latency_us) < min(ruled.latency_us)
    is_cpu = detect().device == "cpu"
    assert ruled.own_clock == plain.own_clock == ("cpu" if is_cpu else "device")
    assert (len(ruled.own_ns), ruled.own_tokens) == (4, ruled.n_tokens)
    assert (ruled.own_reference_ns > 0) == is_cpu
    for own, with_rule, rule in zip(ruled.own_ns, ruled.ruled_own_ns, ruled.rule_answers, strict=True):
        assert with_rule < own if rule else with_rule >= own
    assert plain.ruled_own_ns == []


@pytest.mark.parametrize("rules", [b"{", json_rules("three")[:-1]])
def test_rules_that_cannot_be_read_are_as_good_as_none(
    causal_base: CausalBase, base_dir: Path, tmp_path: Path, rules: bytes
) -> None:
    (tmp_path / "rules").write_bytes(rules)
    assert answered(causal_base, base_dir, tmp_path, ANSWERS["json"]).rule_answers == []


def test_a_rule_whose_label_the_task_does_not_know_says_nothing(
    causal_base: CausalBase, base_dir: Path, tmp_path: Path
) -> None:
    (tmp_path / "rules").write_bytes(label_rules(("three", "milk"), ("tea", "tea")))
    found = answered(causal_base, base_dir, tmp_path, ANSWERS["label"])
    assert found.rule_answers == [None, "tea", None, "tea"]


@pytest.mark.nightly
def test_an_encoder_is_measured_the_same_way(trained: Trained, tmp_path: Path) -> None:
    texts = [row["input"] for row in task_rows(3, start=10)]
    word = texts[0].split()[0].strip(".,?!").lower()
    (tmp_path / "inputs").write_bytes(lines(texts))
    (tmp_path / "adapter").write_bytes(trained.blob)
    (tmp_path / "rules").write_bytes(label_rules((word, LABELS[0])))
    job = EvaluateJob(
        base_model=trained.job.base_model,
        base_model_sha256=trained.result.base_model_sha256,
        labels=list(LABELS),
        adapter_sha256=trained.result.adapter_sha256,
        adapter_config=trained.result.adapter_config,
        temperature=trained.result.temperature,
        inputs_sha256="a" * 64,
        rules_sha256="b" * 64,
    )
    done = evaluate_files(job, folder=tmp_path, base_dir=None, emit=lambda event: None)
    result = EvaluateResult.from_json(done["result"])
    assert result.rule_answers[0] == LABELS[0]
    assert len(result.predictions) == len(result.rule_answers) == len(texts)
    assert None in result.rule_answers
    assert len(result.own_ns) == len(result.ruled_own_ns) == len(texts)
    assert min(result.ruled_own_ns) < min(result.own_ns)
    assert (result.own_clock, result.own_reference_ns > 0) == ("cpu", True)
    assert min(result.ruled_latency_us) < min(result.latency_us)
