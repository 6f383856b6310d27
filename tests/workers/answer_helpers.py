"""A json and a text task for stages that run one by one, with a scripted teacher and results as runners bring them."""

import json
from typing import Any

from django.db import connection
from django.utils import timezone

from backend.blobs import get_json, put_blob, put_jsonl
from backend.compiles.models import Compile, StepRun
from backend.domain.jobs.causal_jobs import DistillCausalResult, EvaluateCausalResult
from backend.domain.jobs.runner_jobs import RunnerJobKind
from backend.domain.lifecycle import STEPS, CompileStatus, StepName, StepStatus
from backend.runner_jobs import leases
from backend.runner_jobs.models import RunnerJob
from backend.tenants.isolation import tenant_scope
from backend.tenants.models import Tenant
from tests.compile_factories import change, make_compile
from tests.factories import make_tenant
from tests.workers.pipeline_helpers import COMPLAINTS, SUBJECTS
from workers import pipeline
from workers.training.training_set import completions

TRAIN, TEST = RunnerJobKind.DISTILL_CAUSAL, RunnerJobKind.EVALUATE_CAUSAL
TEXTS = [f"{subject} {complaint}, again" for subject in SUBJECTS for complaint in COMPLAINTS[:3]]
EASY = {"accuracy_lower": 0.5, "k_min": 0.1, "min_heldout": 5}
SCHEMA = {
    "type": "object",
    "properties": {"subject": {"type": "string"}, "urgent": {"type": "boolean"}},
    "required": ["subject", "urgent"],
    "additionalProperties": False,
}
JSON_OUTPUT = {"type": "json", "schema": SCHEMA, "checks": [{"kind": "copied", "field": "/subject"}]}
TEXT_OUTPUT = {"type": "text", "max_chars": 200, "checks": [{"kind": "excludes", "any_of": ["as an AI"]}]}
SHARED: dict[str, Any] = {
    "name": "complaints",
    "task": "What is complained about, and does it hurry?",
    "slices": [{"name": "all", "share": 1, "hint": "Complaints of a shop's customers."}],
    "sampling": {"n_candidates": 12, "k_select": 6, "label_samples": 3},
    "verifiers": [],
    "recipes": {"enabled": False, "rules": False},
}


def subject_of(text: str) -> str:
    return next(subject for subject in SUBJECTS if text.startswith(subject))


def json_answer(text: str) -> str:
    return json.dumps({"urgent": "charged" in text, "subject": subject_of(text)})


def text_answer(text: str) -> str:
    return f"We are sorry about {subject_of(text).lower()}. Somebody looks into it today."


def json_spec(**changes: Any) -> dict[str, Any]:
    return SHARED | {"output": JSON_OUTPUT, "examples": _gold(json_answer)} | changes


def text_spec(**changes: Any) -> dict[str, Any]:
    return SHARED | {"output": TEXT_OUTPUT, "examples": _gold(text_answer)} | changes


def _gold(answer: Any) -> dict[str, Any]:
    """Texts that the scripted teacher never writes: it ends its complaints with a full stop."""
    texts = [f"{subject} {complaint}, again" for subject in SUBJECTS for complaint in COMPLAINTS[2:5]]
    return {"inline": [{"input": text, "output": answer(text)} for text in texts], "holdout": 0.5}


def trained(row: Compile, **changes: Any) -> dict[str, Any]:
    """What a causal distillation brings back, its adapter among the blobs."""
    result = DistillCausalResult(
        adapter_sha256=put_blob(row.tenant_id, b"adapter" + json.dumps(changes).encode()),
        adapter_config={"format": "kolm.lora-causal/1", "rank": 8, "alpha": 16},
        base_model_sha256="b" * 64,
        tokenizer_sha256="c" * 64,
        n_pairs=10,
        n_parameters=1000,
        training_log=[{"epoch": 1, "train_loss": 0.5, "validation_loss": 0.6}],
        active={"precision": "fp32", "n_too_long": 0},
        runner_ms=1500,
        resumed_from_step=0,
    )
    return result.to_json() | changes


def answered(outputs: list[str], **changes: Any) -> dict[str, Any]:
    n = len(outputs)
    result = EvaluateCausalResult(
        outputs=outputs,
        finish_reasons=["stop"] * n,
        n_tokens=[5] * n,
        confidences=[0.9] * n,
        baseline_outputs=["{}"] * n,
        rule_answers=[],
        latency_us=[2000] * min(n, 5),
        ruled_latency_us=[],
        device="cpu",
        engine={"name": "torch"},
        runner_ms=900,
    )
    return result.to_json() | changes


def claim(row: Compile, kind: RunnerJobKind) -> tuple[RunnerJob, str, dict[str, Any]]:
    """The one job of this kind that waits, its token and what it asks."""
    found = leases.claim("r1", [kind])
    assert found is not None
    job = RunnerJob.objects.get(compile_id=row.id, status="leased")
    return job, found.token, get_json(row.tenant_id, job.payload_sha256)


def bring(row: Compile, kind: RunnerJobKind, result: dict[str, Any]) -> dict[str, Any]:
    """Work off the job that waits; what it asked."""
    job, token, payload = claim(row, kind)
    leases.report_success(job.id, token, result)
    return payload


def fail(row: Compile, kind: RunnerJobKind, code: str) -> None:
    job, token, _ = claim(row, kind)
    leases.report_failure(job.id, token, code=code, message=f"It is {code}.", is_retryable=False)


def at_distillation(answer: Any, *, column: str = "output", tenant: Tenant | None = None, **spec: Any) -> Compile:
    """A compile whose pairs are there: what comes next is a runner's. A `row` of 24 held-out examples."""
    RunnerJob.objects.all().delete()
    row = make_compile(tenant or make_tenant(), **spec)
    heldout = [{"input": text, "output": answer(text)} for text in TEXTS]
    dataset = [{"input": f"pair {i}", column: answer(text), "weight": 1.0} for i, text in enumerate(TEXTS)]
    done = {
        StepName.SLICING: {"gold_heldout": put_jsonl(row.tenant_id, heldout)},
        StepName.LABELING: {
            "dataset": put_jsonl(row.tenant_id, dataset),
            "completions": put_jsonl(row.tenant_id, dataset if column == "output" else completions(dataset)),
        },
    }
    change(row, status=CompileStatus.RUNNING, started_at=timezone.now())
    with tenant_scope(row.tenant_id):
        for name in STEPS[:5]:
            facts = {"embedder": "e@sha256:" + "0" * 64}
            output = {"digests": done.get(name, {}), "facts": facts}
            StepRun.objects.filter(compile=row, name=name).update(status=StepStatus.SUCCEEDED, output=output)
    return row


class Killed(BaseException):
    """The process is gone: nothing is written, no lease given back."""


def advance(row: Compile) -> None:
    """As a worker does when it is woken, or finds a lease that has run out."""
    due = "UPDATE compiles_compilelease SET due_at = now(), lease_until = NULL WHERE compile_id = %s"
    with connection.cursor() as cursor:
        cursor.execute(due, [row.id])
    try:
        pipeline.advance(row.id)
    except Killed:
        connection.close()


def right(n: int) -> list[str]:
    """The first `n` held-out answers are right."""
    return [json_answer(text) if i < n else "{" for i, text in enumerate(TEXTS)]


def trial(row: Compile, outputs: list[str], *, bare: list[str] | None = None, **of_training: Any) -> dict[str, Any]:
    """Bring one training and one evaluation; the payload of the training. `bare`: the answers without an adapter."""
    advance(row)
    asked = bring(row, TRAIN, trained(row, **of_training))
    advance(row)
    bring(row, TEST, answered(outputs, **({} if bare is None else {"baseline_outputs": bare})))
    return asked
