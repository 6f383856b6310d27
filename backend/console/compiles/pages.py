"""The page of one compile: where it stands, what it cost, what became of its candidates, whether the gate let it pass.

The page is two parts that are fetched anew while the compile runs: `progress` at every event, `results` when a step
ends; of `results`, `purchases` at every progress. All are whole without a script.
"""

import json
from collections.abc import Sequence
from typing import Any

from django.http import Http404, HttpResponse
from django.shortcuts import render

from backend.artifacts.models import Artifact, Receipt
from backend.compiles.lifecycle.ablation_checks import other_arms, student_of
from backend.compiles.models import Compile, CompileEvent, StepRun
from backend.console.access import ConsoleRequest, page
from backend.console.charts import funnel
from backend.console.compiles import figures
from backend.console.compiles.draft_rows import drafts_context
from backend.console.compiles.maps import candidate_map
from backend.console.compiles.purchases import shown_purchases
from backend.console.compiles.quality_cards import shown_card
from backend.console.compiles.recipe_figures import fast_paths
from backend.console.compiles.rows import find_compile, output_of
from backend.console.compiles.slices import in_all, pools_of, shown_slices
from backend.domain.ids import Prefix, encode_id
from backend.domain.lifecycle import TERMINAL, CompileStatus, StepName
from backend.domain.planning.preflight.lines import Preflight
from backend.domain.planning.step_outputs import EvaluationOut, GateOut, LabelingOut
from backend.domain.roles import Permission
from backend.domain.spec.defaults import buys_in_rounds
from backend.domain.spec.parsing import Spec, read_stored_spec
from backend.usage.reports import compile_bill

MAX_WARNINGS = 40
MAX_SPEC_CHARS = 8_000
RESUMABLE = (CompileStatus.FAILED, CompileStatus.EXPIRED, CompileStatus.CANCELED)
ABLATABLE = (CompileStatus.SUCCEEDED, CompileStatus.GATE_FAILED)
ENDS = tuple(f"compile.{status.value}" for status in TERMINAL)
TYPES = (
    "compile.status",
    "compile.preflight",
    *ENDS,
    "step.started",
    "step.progress",
    "step.retrying",
    "step.succeeded",
    "warning",
    "selection.report",
    "gate.decided",
    "artifact.published",
)
_NEXT = {  # what a person can do about an end that is not a success
    CompileStatus.CANCELED: "What is done and paid for is kept; Resume continues at the first unfinished step.",
    CompileStatus.EXPIRED: "No worker took it in time. Resume it; finished steps are kept.",
    CompileStatus.FAILED: "Finished steps are kept; Resume continues at this step, with the budget that you set.",
}
_NEXT_AFTER_PREFLIGHT = (
    "Nothing but the tiny calls was paid. Where the spec is at fault, choose Compile again and change it; where the "
    "vendor or this installation was, Resume."
)


@page(Permission.VIEW)
def compile_page(request: ConsoleRequest, compile: str) -> HttpResponse:
    row = find_compile(request, compile)
    steps = _steps(row)
    context = _about(request, row, steps) | _progress(row, steps) | _results(request, row, steps)
    return render(request, "console/compiles/one.html", context)


@page(Permission.VIEW)
def compile_part(request: ConsoleRequest, compile: str, part: str) -> HttpResponse:
    """One part of the page, for a page that is open already."""
    row = find_compile(request, compile)
    steps = _steps(row)
    context = _about(request, row, steps) | _progress(row, steps)
    if part == "progress":
        return render(request, "console/compiles/_progress.html", context)
    if part == "purchases":
        context["purchases"] = shown_purchases(steps)
        return render(request, "console/compiles/_purchases.html", context)
    if part == "results":
        context |= _results(request, row, steps) | {"is_part": True}
        return render(request, "console/compiles/_results.html", context)
    raise Http404


def _about(request: ConsoleRequest, row: Compile, steps: Sequence[StepRun]) -> dict[str, Any]:
    status = CompileStatus(row.status)
    may = request.team_session.may(Permission.COMPILE)
    may_ablate = may and status in ABLATABLE and row.ablation_of is None
    return {
        "row": row,
        "id": encode_id(Prefix.COMPILE, row.id),
        "of": None if row.ablation_of is None else encode_id(Prefix.COMPILE, row.ablation_of),
        "artifact_id": None if row.artifact_id is None else encode_id(Prefix.ARTIFACT, row.artifact_id),
        "is_over": status in TERMINAL,
        "api_path": f"/v1/compiles/{encode_id(Prefix.COMPILE, row.id)}",
        "may_start": may,
        "may_cancel": may and status in (CompileStatus.QUEUED, CompileStatus.RUNNING, CompileStatus.AWAITING_BATCH),
        "may_resume": may and status in RESUMABLE,
        "may_ablate": may_ablate,
        "has_plan": may_ablate and buys_in_rounds(read_stored_spec(row.spec)),
        "other_students": other_arms(student_of(steps, read_stored_spec(row.spec))) if may_ablate else [],
        "next": _NEXT_AFTER_PREFLIGHT if row.failure_code == "preflight_failed" else _NEXT.get(status, ""),
        "types": " ".join(TYPES),
        "ends": " ".join(ENDS),
    }


def _steps(row: Compile) -> list[StepRun]:
    return list(StepRun.objects.of_tenant(row.tenant_id).filter(compile=row).order_by("position"))


def _progress(row: Compile, steps: Sequence[StepRun]) -> dict[str, Any]:
    return {
        "steps": figures.timeline(steps),
        "costs": figures.costs(row),
        "took_s": figures.took_s(row),
        "accuracy": row.evaluation,
        "preflight": None if row.preflight is None else Preflight.from_json(row.preflight),
    }


def _results(request: ConsoleRequest, row: Compile, steps: Sequence[StepRun]) -> dict[str, Any]:
    """All that grows as steps end."""
    labeling, evaluation, gate = (
        output_of(LabelingOut, steps),
        output_of(EvaluationOut, steps),
        output_of(GateOut, steps),
    )
    training = next((step.output.get("facts", {}) for step in steps if step.name == StepName.DISTILLATION), {})
    trial = {} if evaluation is None else evaluation.best_trial
    pools = pools_of(row)
    chosen = next((pool for pool in pools if str(pool.row.position) == request.GET.get("slice")), None)
    warnings = CompileEvent.objects.of_tenant(row.tenant_id).filter(compile=row, type="warning").order_by("seq")
    return {
        "pools": shown_slices(pools),
        "n_pools": len(pools),
        "all_pools": [(pool.row.position, pool.row.name) for pool in pools[:100]],
        "funnel": in_all(pools),
        "funnel_chart": funnel(in_all(pools).stages, title="From N to K, all slices"),
        "n_gaps": sum(pool.has_gap for pool in pools),
        "map": candidate_map(row, pools, of_slice=None if chosen is None else chosen.row.id),
        "chosen": chosen,
        **drafts_context(row, pools),
        "loss": figures.loss_curve(training),
        "training": training,
        "student": next((one for one in [trial, training] if one.get("student")), {}),
        "evaluation": evaluation,
        "labels": labeling,
        "purchases": shown_purchases(steps),
        "fast": fast_paths(row.tenant_id, labeling, {} if evaluation is None else evaluation.figures),
        "floors": figures.floors(row),
        "axes": figures.axes({} if gate is None else gate.k_score),
        "confusion": figures.confusion_chart(row.evaluation or {}),
        "card": shown_card(row.evaluation),
        "receipts": list(
            Receipt.objects.of_tenant(row.tenant_id)
            .filter(compile_id=row.id)
            .order_by("seq")
            .values("id", "seq", "step", "payload_sha256", "created_at")
        ),
        "artifact": _artifact(row),
        "warnings": list(warnings[:MAX_WARNINGS]),
        "arms": _arms(row),
        "bill": compile_bill(row.tenant_id, row.id) if request.team_session.may(Permission.BILLS_READ) else None,
        **_spec(row),
    }


def _spec(row: Compile) -> dict[str, Any]:
    ordered = {key: row.spec[key] for key in (*Spec.model_fields, *row.spec) if key in row.spec}
    text = json.dumps(ordered, indent=1, ensure_ascii=False)
    return {"spec_text": text[:MAX_SPEC_CHARS], "spec_is_cut": len(text) > MAX_SPEC_CHARS}


def _artifact(row: Compile) -> Artifact | None:
    if row.artifact_id is None:
        return None
    return Artifact.objects.of_tenant(row.tenant_id).filter(id=row.artifact_id).defer("manifest", "evaluation").first()


def _arms(row: Compile) -> list[dict[str, Any]]:
    ablations = Compile.objects.of_tenant(row.tenant_id).filter(ablation_of=row.id).order_by("-created_at")
    columns = ablations.values("id", "arm", "status", "k_score_ppm", "spent_microusd")[:20]
    return [one | {"id": encode_id(Prefix.COMPILE, one["id"])} for one in columns]
