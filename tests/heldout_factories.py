"""Compiles whose held-out inputs are answered: rows and blobs as the steps slicing and evaluation leave them."""

import json
from collections.abc import Sequence
from typing import Any

from backend.blobs import put_json, put_jsonl
from backend.compiles.models import Compile, StepRun
from backend.domain.evaluation.classification import evaluate
from backend.domain.evaluation.generative import evaluate_json, evaluate_text
from backend.domain.lifecycle import CompileStatus, StepName, StepStatus
from backend.domain.planning.step_outputs import EvaluationOut
from backend.domain.planning.trials import TrialKind
from backend.domain.spec.parsing import JsonOutput, LabelOutput, Spec, TextOutput, label_names, read_stored_spec
from backend.tenants.isolation import tenant_scope
from backend.tenants.models import Tenant
from tests.compile_factories import change, make_compile
from workers.training.measurement import Measurement

ORDERS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "kind": {"enum": ["order", "return"]},
        "urgent": {"type": "boolean"},
        "lines": {"type": "array", "items": {"type": "object", "properties": {"sku": {"type": "string"}}}},
    },
    "required": ["kind"],
}
JSON_SPEC: dict[str, Any] = {
    "output": {"type": "json", "schema": ORDERS, "checks": [{"kind": "copied", "field": "/lines/*/sku"}]},
    "examples": {"inline": [{"input": f"order {i}", "output": '{"kind": "order"}'} for i in range(24)], "holdout": 0.5},
}
TEXT_SPEC: dict[str, Any] = {
    "output": {"type": "text", "accuracy": "checks", "checks": [{"kind": "excludes", "any_of": ["promise"]}]},
    "examples": {"inline": [{"input": f"question {i}", "output": f"answer {i}"} for i in range(24)], "holdout": 0.5},
}


def label_compile(tenant: Tenant, *pairs: tuple[str, str], inputs: Sequence[str] = (), **measured: Any) -> Compile:
    """A label compile below its gate, (gold, answer) by row."""
    row = make_compile(tenant)
    return answer_heldout(row, [gold for gold, _ in pairs], [answer for _, answer in pairs], inputs=inputs, **measured)


def json_compile(tenant: Tenant, *pairs: tuple[Any, Any], inputs: Sequence[str] = (), **measured: Any) -> Compile:
    """A json compile below its gate, (gold, answer) by row; an answer that is a text is no JSON."""
    row = make_compile(tenant, **JSON_SPEC)
    predictions = [answer if isinstance(answer, str) else json.dumps(answer) for _, answer in pairs]
    failed = {"failed": [["schema"] if isinstance(answer, str) else [] for _, answer in pairs]}
    return answer_heldout(row, [json.dumps(gold) for gold, _ in pairs], predictions, inputs=inputs, **failed | measured)


def text_compile(tenant: Tenant, *answers: str, failed: list[list[str]]) -> Compile:
    row = make_compile(tenant, **TEXT_SPEC)
    return answer_heldout(row, [f"gold {i}" for i in range(len(answers))], list(answers), failed=failed)


def answer_heldout(
    row: Compile, gold: list[str], predictions: list[str], *, inputs: Sequence[str] = (), **measured: Any
) -> Compile:
    """Leave what both steps leave, and end the compile as one that missed its gate."""
    texts = inputs or [f"held-out input {i}" for i in range(len(gold))]
    heldout = [{"input": text, "output": truth} for text, truth in zip(texts, gold, strict=True)]
    kind = TrialKind.ENCODER if row.spec["output"]["type"] == "label" else TrialKind.CAUSAL
    evals = Measurement(
        kind=kind,
        predictions=predictions,
        baseline_predictions=predictions,
        confidences_ppm=measured.pop("confidences_ppm", [900_000] * len(gold)),
        latency_us_p50=1,
        latency_us_p95=2,
        n_latencies=1,
        device="cpu",
        **measured,
    )
    figures = _figures(read_stored_spec(row.spec), gold, evals)
    out = EvaluationOut(evals=put_json(row.tenant_id, evals.to_json()), figures=figures, trials=[], chosen=0)
    outputs = {
        StepName.SLICING: {
            "digests": {"gold_heldout": put_jsonl(row.tenant_id, heldout)},
            "facts": {"embedder": "e@sha256:" + "0" * 64},
        },
        StepName.EVALUATION: out.to_json(),
    }
    with tenant_scope(row.tenant_id):
        for name, output in outputs.items():
            StepRun.objects.filter(compile=row, name=name).update(status=StepStatus.SUCCEEDED, output=output)
    change(row, status=CompileStatus.GATE_FAILED, evaluation=figures)
    return row


def _figures(spec: Spec, gold: list[str], measured: Measurement) -> dict[str, Any]:
    passed = [not names for names in measured.failed or [[]] * len(gold)]
    match spec.output:
        case LabelOutput():
            return evaluate(label_names(spec), gold, measured.predictions).to_json()
        case JsonOutput() as output:
            return evaluate_json(output, gold, measured.predictions, passed=passed).to_json()
        case TextOutput() as output:
            return evaluate_text(output, gold, measured.predictions, passed=passed).to_json()
