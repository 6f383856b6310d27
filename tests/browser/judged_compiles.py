"""Compiles that were judged, written straight into a deployment's database: what their pages show needs no worker.

Run as a script with the deployment's environment: `python -m tests.browser.judged_compiles TENANT`; it prints the
public ids.
"""

import json
import sys
from typing import Any

import django

N_SLICES, N_TEXTS = 5, 24


def write(tenant_id: str) -> dict[str, Any]:
    """Two compiles that passed and one that did not, each with slices, candidates, a quality card and receipts; one
    that runs."""
    from uuid import UUID

    from backend.compiles.events import append_event
    from backend.domain.lifecycle import CompileStatus
    from backend.tenants.isolation import tenant_scope
    from backend.tenants.models import Tenant
    from tests.compile_factories import change, make_compile, public_id

    with tenant_scope(UUID(tenant_id)):
        tenant = Tenant.objects.get(id=UUID(tenant_id))
    passed = [_judged(tenant, n_wrong=n, version=n) for n in (3, 5)]
    failed = _judged(tenant, n_wrong=50)
    running = make_compile(tenant)
    change(running, status=CompileStatus.RUNNING)
    with tenant_scope(tenant.id):
        for done in range(1, 20):
            data = {"step": "distillation", "done": done, "total": 40, "loss": 1 / done, "message": "epoch 1 of 2"}
            append_event(tenant.id, running.id, "step.progress", data)
    return {"passed": [public_id(row) for row in passed], "failed": public_id(failed), "running": public_id(running)}


def _judged(tenant: Any, *, n_wrong: int, version: int = 0) -> Any:
    """A compile with so many wrong answers of a hundred; it publishes this version, or none."""
    from backend.domain.evaluation.alternatives import AlternativeName, label_alternatives
    from backend.domain.evaluation.classification import evaluate
    from backend.domain.evaluation.quality_card import Basis, Spent, TeacherCost, quality_card
    from backend.domain.lifecycle import CompileStatus
    from tests.backend.console.compiles.test_pages import judged, trained
    from tests.compile_factories import LABELS, change, fresh, make_artifact, make_compile, make_receipts

    row, spent = make_compile(tenant), 18_912 + 9_000 * n_wrong
    truths = [LABELS[i % 2] for i in range(100)]
    answers = [LABELS[1 - i % 2] if i < n_wrong else truths[i] for i in range(100)]
    frozen = truths[:90] + [LABELS[1 - i % 2] for i in range(90, 100)]
    judged(row, answers, frozen=frozen)
    others = {AlternativeName.TEACHER: truths, AlternativeName.FROZEN: frozen}
    card = quality_card(
        task_type="label",
        evaluation=evaluate(LABELS, truths, answers),
        alternatives=label_alternatives(truths, answers, others),
        student=Spent(answer_us=5_000, nanousd=750),
        head=None,
        teacher=TeacherCost(nanousd=30_750, n_calls=40, basis=Basis.HELD_OUT),
        compile_microusd=spent,
        price_version="2026-11-22",
    )
    change(row, evaluation=fresh(row).evaluation | {"card": card.to_json()}, spent_microusd=spent)
    _write_candidates(row)
    trained(row)
    make_receipts(row, n=9)
    artifact = make_artifact(row, version=version) if version else None
    status = CompileStatus.SUCCEEDED if version else CompileStatus.GATE_FAILED
    change(row, status=status, artifact_id=None if artifact is None else artifact.id)
    return row


def _write_candidates(row: Any) -> None:
    import numpy as np

    from tests.compile_factories import LABELS, make_candidate, make_slice

    rng = np.random.default_rng(7)
    for position in range(N_SLICES):
        report = {"n": N_TEXTS, "k_requested": 8, "k_actual": 8, "method": "k_center", "k_natural": 6, "n_groups": 20}
        log = "slice x\n  candidates: 24   K target: 8   kept: 8 by k_center\n  natural clusters: 6"
        selection = report | {"severity": "warning", "gap_detected": True, "mitigation": "none", "log": log}
        pool = make_slice(row, name=f"slice-{position}", position=position, selection=selection, k_actual=8)
        for n in range(N_TEXTS):
            vector = rng.normal(size=16).astype(np.float32)
            state = "trained" if n < 8 else "dropped"
            label = LABELS[n % 2] if n < 8 else ""
            embedding = (vector / np.linalg.norm(vector)).tobytes()
            make_candidate(pool, text=f"message {position} {n}", state=state, label=label, embedding=embedding)


if __name__ == "__main__":
    django.setup()
    print(json.dumps(write(sys.argv[1])))
