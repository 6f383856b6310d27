"""The page of one compile: its head answers whether it worked, how good it is, what it cost and what to do next; its
tabs have the rest.

While the compile runs, the head is fetched anew at every event, the open tab when what it shows has changed. A tab is a
link with an address: the page is whole without a script.
"""

from collections.abc import Sequence
from typing import Any

from django.http import Http404, HttpResponse
from django.shortcuts import render

from backend.compiles.draft_savings import savings_of_compile
from backend.compiles.models import Compile, StepRun
from backend.console.access import ConsoleRequest, page
from backend.console.compiles import figures
from backend.console.compiles.page.verdicts import next_steps, quality_words, rival_words, verdict_of
from backend.console.compiles.quality_cards import shown_card
from backend.console.compiles.rows import find_compile
from backend.console.compiles.tabs import Tab, tab_context, tab_of
from backend.domain.ids import Prefix, encode_id
from backend.domain.lifecycle import TERMINAL, CompileStatus
from backend.domain.planning.preflight.lines import Preflight
from backend.domain.roles import Permission

RESUMABLE = (CompileStatus.FAILED, CompileStatus.EXPIRED, CompileStatus.CANCELED)
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
_EVENT = "kolm:{} from:closest [data-stream]"
_AT_ANY, _AT_PROGRESS = _EVENT.format("changed"), _EVENT.format("advanced")
_AT_A_STEP = f"{_EVENT.format('step-succeeded')} delay:400ms, {_EVENT.format('compile-status')} delay:700ms"
TRIGGERS = {  # when an open tab is fetched anew; any other when a step has ended
    Tab.STEPS: _AT_ANY,
    Tab.LABELS: f"{_AT_PROGRESS}, {_AT_A_STEP}",
    Tab.TRAINING: f"{_AT_PROGRESS}, {_AT_A_STEP}",
}


@page(Permission.VIEW)
def compile_page(request: ConsoleRequest, compile: str) -> HttpResponse:
    """The page, or of a page that is open already its tabs alone."""
    row = find_compile(request, compile)
    steps = _steps(row)
    context = _about(request, row) | _tab(request, row, steps)
    if request.htmx and request.htmx.target == "tabs":
        return render(request, "console/compiles/_tabs.html", context)
    return render(request, "console/compiles/one.html", context | _head(row, steps))


@page(Permission.VIEW)
def compile_part(request: ConsoleRequest, compile: str, part: str) -> HttpResponse:
    """The head, or the inside of a tab, for a page that is open already."""
    row = find_compile(request, compile)
    steps = _steps(row)
    if part == "head":
        context = _about(request, row) | _head(row, steps) | {"is_part": True}
        return render(request, "console/compiles/_head.html", context)
    if part not in set(Tab):
        raise Http404
    context = _about(request, row) | tab_context(request, row, steps, Tab(part))
    return render(request, f"console/compiles/tabs/{part}.html", context)


def _about(request: ConsoleRequest, row: Compile) -> dict[str, Any]:
    status, id = CompileStatus(row.status), encode_id(Prefix.COMPILE, row.id)
    may = request.team_session.may(Permission.COMPILE)
    return {
        "row": row,
        "id": id,
        "of": None if row.ablation_of is None else encode_id(Prefix.COMPILE, row.ablation_of),
        "artifact_id": None if row.artifact_id is None else encode_id(Prefix.ARTIFACT, row.artifact_id),
        "is_over": status in TERMINAL,
        "api_path": f"/v1/compiles/{id}",
        "may_start": may,
        "may_cancel": may and status in (CompileStatus.QUEUED, CompileStatus.RUNNING, CompileStatus.AWAITING_BATCH),
        "may_resume": may and status in RESUMABLE,
        "accuracy": row.evaluation,
        "costs": figures.costs(row),
        "took_s": figures.took_s(row),
        "at_any_event": _AT_ANY,
        "types": " ".join(TYPES),
        "ends": " ".join(ENDS),
    }


def _head(row: Compile, steps: Sequence[StepRun]) -> dict[str, Any]:
    return {
        "verdict": verdict_of(row, steps),
        "quality": quality_words(row),
        "rivals": rival_words(row),
        "card": shown_card(row.evaluation),
        "saved": savings_of_compile(row.tenant_id, row.id),
        "next_steps": next_steps(row),
        "preflight": None if row.preflight is None else Preflight.from_json(row.preflight),
    }


def _tab(request: ConsoleRequest, row: Compile, steps: Sequence[StepRun]) -> dict[str, Any]:
    tab = tab_of(request, row)
    return tab_context(request, row, steps, tab) | {"trigger": TRIGGERS.get(tab, _AT_A_STEP)}


def _steps(row: Compile) -> list[StepRun]:
    return list(StepRun.objects.of_tenant(row.tenant_id).filter(compile=row).order_by("position"))
