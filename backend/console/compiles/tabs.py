"""The tabs of a compile's page: links with addresses (`?tab=gate`), each the part of the page that answers one
question. `?tab=all` is everything below each other, for printing and for a browser's own search."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from backend.artifacts.models import Artifact, Receipt
from backend.compiles.lifecycle.ablation_checks import other_arms, student_of
from backend.compiles.models import Compile, CompileEvent, StepRun
from backend.console.access import ConsoleRequest
from backend.console.charts import funnel
from backend.console.compiles import figures
from backend.console.compiles.answers import wrong_part
from backend.console.compiles.draft_rows import drafts_context
from backend.console.compiles.maps import candidate_map
from backend.console.compiles.page.gold import gold_of, label_rows
from backend.console.compiles.page.losses import loss_curve, loss_so_far
from backend.console.compiles.page.purchases import shown_purchases
from backend.console.compiles.page.selection_words import pool_words
from backend.console.compiles.recipe_figures import fast_paths
from backend.console.compiles.rows import output_of
from backend.console.compiles.slices import Pool, in_all, pools_of, shown_slices
from backend.domain.ids import Prefix, encode_id
from backend.domain.lifecycle import TERMINAL, CompileStatus, StepName
from backend.domain.planning.step_outputs import EvaluationOut, GateOut, LabelingOut, SlicingOut
from backend.domain.roles import Permission
from backend.domain.spec.defaults import buys_in_rounds
from backend.domain.spec.parsing import Spec, read_stored_spec
from backend.usage.reports import compile_bill

MAX_WARNINGS = 40
MAX_SPEC_CHARS = 8_000
ABLATABLE = (CompileStatus.SUCCEEDED, CompileStatus.GATE_FAILED)


class Tab(StrEnum):
    STEPS = "steps"
    DATA = "data"
    SELECTION = "selection"
    LABELS = "labels"
    TRAINING = "training"
    GATE = "gate"
    WRONG = "wrong"
    DRAFTS = "drafts"
    RECEIPTS = "receipts"
    SPEC = "spec"
    ALL = "all"


WORDS = {
    Tab.STEPS: "Steps and cost",
    Tab.DATA: "Data",
    Tab.SELECTION: "Selection",
    Tab.LABELS: "Labels",
    Tab.TRAINING: "Training",
    Tab.GATE: "Gate",
    Tab.WRONG: "Wrong answers",
    Tab.DRAFTS: "Drafts",
    Tab.RECEIPTS: "Receipts",
    Tab.SPEC: "Spec",
    Tab.ALL: "All on one page",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The material of a tab; `pools` is empty for a tab that shows none."""

    request: ConsoleRequest
    row: Compile
    steps: Sequence[StepRun]
    pools: Sequence[Pool] = ()


def tab_of(request: ConsoleRequest, row: Compile) -> Tab:
    """The tab that the address names, else the one that a reader wants first: the steps of a compile that runs, the
    gate of one that was judged. A link to a slice of the map is one to the selection."""
    asked = request.GET.get("tab", "")
    if asked in set(Tab):
        return Tab(asked)
    if "slice" in request.GET:
        return Tab.SELECTION
    return Tab.GATE if row.gate and CompileStatus(row.status) in TERMINAL else Tab.STEPS


def tab_context(request: ConsoleRequest, row: Compile, steps: Sequence[StepRun], tab: Tab) -> dict[str, Any]:
    """The values that a tab's template prints."""
    pools = pools_of(row) if tab in (Tab.SELECTION, Tab.DRAFTS, Tab.ALL) else ()
    view = View(request=request, row=row, steps=steps, pools=pools)
    wanted = list(_CONTEXTS) if tab is Tab.ALL else [tab]
    context: dict[str, Any] = {
        "tab": tab.value,
        "tabs": [(each.value, words) for each, words in WORDS.items()],
        "tab_template": f"console/compiles/tabs/{tab.value}.html",
    }
    for each in wanted:
        context |= _CONTEXTS[each](view)
    return context


def _steps(view: View) -> dict[str, Any]:
    row = view.row
    warnings = CompileEvent.objects.of_tenant(row.tenant_id).filter(compile=row, type="warning").order_by("seq")
    may_read = view.request.team_session.may(Permission.BILLS_READ)
    return {
        "steps": figures.timeline(view.steps),
        "warnings": list(warnings[:MAX_WARNINGS]),
        "bill": compile_bill(row.tenant_id, row.id) if may_read else None,
    }


def _data(view: View) -> dict[str, Any]:
    sliced = output_of(SlicingOut, view.steps)
    gold = None if sliced is None else gold_of(view.row, sliced)
    return {"gold": gold, "label_rows": label_rows(view.row, gold)}


def _selection(view: View) -> dict[str, Any]:
    row, pools = view.row, view.pools
    chosen = next((pool for pool in pools if str(pool.row.position) == view.request.GET.get("slice")), None)
    return {
        "pools": shown_slices(pools),
        "cohesion": [(pool, pool_words(pool.report, pool.forced)) for pool in shown_slices(pools)],
        "n_pools": len(pools),
        "all_pools": [(pool.row.position, pool.row.name) for pool in pools[:100]],
        "funnel": in_all(pools),
        "funnel_chart": funnel(in_all(pools).stages, title="From N to K, all slices"),
        "n_gaps": sum(pool.has_gap for pool in pools),
        "map": candidate_map(row, pools, of_slice=None if chosen is None else chosen.row.id),
        "chosen": chosen,
    }


def _labels(view: View) -> dict[str, Any]:
    return {"labels": output_of(LabelingOut, view.steps), "purchases": shown_purchases(view.steps)}


def _training(view: View) -> dict[str, Any]:
    labeling, evaluation = output_of(LabelingOut, view.steps), output_of(EvaluationOut, view.steps)
    training = next((step.output.get("facts", {}) for step in view.steps if step.name == StepName.DISTILLATION), {})
    trial = {} if evaluation is None else evaluation.best_trial
    return {
        "loss": loss_curve(training) or loss_so_far(view.row),
        "training": training,
        "student": next((one for one in [trial, training] if one.get("student")), {}),
        "evaluation": evaluation,
        "fast": fast_paths(view.row.tenant_id, labeling, {} if evaluation is None else evaluation.figures),
    }


def _gate(view: View) -> dict[str, Any]:
    gate = output_of(GateOut, view.steps)
    return {
        "floors": figures.floors(view.row),
        "axes": figures.axes({} if gate is None else gate.k_score),
        "confusion": figures.confusion_chart(view.row.evaluation or {}),
    }


def _wrong(view: View) -> dict[str, Any]:
    return {"wrong": wrong_part(view.row)}


def _drafts(view: View) -> dict[str, Any]:
    return drafts_context(view.row, view.pools)


def _receipts(view: View) -> dict[str, Any]:
    row = view.row
    receipts = Receipt.objects.of_tenant(row.tenant_id).filter(compile_id=row.id).order_by("seq")
    return {
        "receipts": list(receipts.values("id", "seq", "step", "payload_sha256", "created_at")),
        "artifact": _artifact(row),
    }


def _spec(view: View) -> dict[str, Any]:
    row, spec = view.row, read_stored_spec(view.row.spec)
    may_ablate = (
        view.request.team_session.may(Permission.COMPILE)
        and CompileStatus(row.status) in ABLATABLE
        and row.ablation_of is None
    )
    return {
        **_text_of(row),
        "arms": _arms(row),
        "may_ablate": may_ablate,
        "has_plan": may_ablate and buys_in_rounds(spec),
        "other_students": other_arms(student_of(view.steps, spec)) if may_ablate else [],
    }


def _text_of(row: Compile) -> dict[str, Any]:
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


_CONTEXTS: dict[Tab, Callable[[View], dict[str, Any]]] = {
    Tab.STEPS: _steps,
    Tab.DATA: _data,
    Tab.SELECTION: _selection,
    Tab.LABELS: _labels,
    Tab.TRAINING: _training,
    Tab.GATE: _gate,
    Tab.WRONG: _wrong,
    Tab.DRAFTS: _drafts,
    Tab.RECEIPTS: _receipts,
    Tab.SPEC: _spec,
}
