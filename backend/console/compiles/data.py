"""Every candidate of a compile: what it says, where it came from, whether it was kept, and why."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db.models import Count, F, QuerySet
from django.http import HttpResponse, StreamingHttpResponse
from django.shortcuts import render

from backend.compiles.models import Candidate, Compile, Slice
from backend.compiles.shapes import CandidateShape
from backend.compiles.states import CandidateState
from backend.console.access import ConsoleRequest, page
from backend.console.compiles.rows import find_compile, page_of
from backend.domain.answers.candidates import Origin
from backend.domain.errors import NotFound
from backend.domain.ids import Prefix, decode_id, encode_id
from backend.domain.roles import Permission
from backend.rest.async_queries import let_go, query
from backend.tenants.isolation import tenant_scope

PAGE_SIZE = 50
CLIP_CHARS = 240
MAX_SHOWN_CHARS = 4_000  # of one text, opened; the download has all of it
MAX_PAGE_CHARS = 40_000  # of all texts of a page together, so that the page stays small
CHUNK = 500
STATES = tuple(state.value for state in CandidateState)
ORIGINS = tuple(origin.value for origin in Origin)
WHY = {
    CandidateState.VALID: "passed its checks; selection has not run yet",
    CandidateState.PICKED: "kept by selection; waits for its label",
    CandidateState.DROPPED: "not among the K of its slice; kept in the draft cache",
    CandidateState.LABELED: "the teacher agreed on its label",
    CandidateState.UNVERIFIED: "the teacher did not agree on a label often enough",
    CandidateState.TRAINED: "kept, labeled and trained on",
    CandidateState.LEFT_OUT: "kept and labeled, but not among the training pairs",
}
REASONS = {
    "empty": "empty",
    "too_long": "too long",
    "cut": "cut off at its limit",
    "filtered": "refused by the teacher's filter",
    "control_characters": "control characters",
    "held_out": "a held-out example",
    "held_out_twin": "nearly a held-out example",
    "gold": "a training example, whose answer is known",
    "length": "the spec's length check",
    "regex": "the spec's regex check",
    "contains": "the spec's contains check",
    "excludes": "the spec's excludes check",
}
KEPT = frozenset({CandidateState.PICKED, CandidateState.LABELED, CandidateState.TRAINED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One candidate as the table shows it; `rest` is what opening it adds, `is_cut` where even that is not all."""

    row: Candidate
    id: str
    slice: str
    slice_id: str
    text: str
    rest: str
    is_cut: bool
    why: str
    votes: list[tuple[str, int]]

    @property
    def is_kept(self) -> bool:
        return self.row.state in KEPT

    @property
    def short_id(self) -> str:
        return f"…{self.id[-8:]}"


@page(Permission.VIEW)
def compile_data(request: ConsoleRequest, compile: str) -> HttpResponse:
    row = find_compile(request, compile)
    slices = dict(
        Slice.objects.of_tenant(row.tenant_id).filter(compile=row).order_by("position").values_list("id", "name")
    )
    asked = _filters_of(request)
    rows = _filter(row, asked).defer("embedding", "token_logprobs", "tokens")
    shown_rows, cursor = page_of(
        rows, request.GET.get("cursor", ""), prefix=Prefix.CANDIDATE, size=PAGE_SIZE, newest_first=False
    )
    filters = request.GET.copy()
    filters.pop("cursor", None)
    context = {
        "row": row,
        "id": encode_id(Prefix.COMPILE, row.id),
        "lines": _lines(shown_rows, slices),
        "before": _page_address(request, cursor["previous"]),
        "after": _page_address(request, cursor["next"]),
        "asked": asked,
        "is_filtered": any(asked.values()),
        "slices": [(encode_id(Prefix.SLICE, slice_id), name) for slice_id, name in list(slices.items())[:256]],
        "states": STATES,
        "origins": ORIGINS,
        "reasons": REASONS,
        "counts": _counts(row),
        "is_label": row.spec["output"]["type"] == "label",
        "query": filters.urlencode(),
        "api_path": f"/v1/compiles/{compile}/candidates?limit=100",
    }
    return render(request, "console/compiles/data.html", context)


@page(Permission.VIEW, atomic=False)
def download(request: ConsoleRequest, compile: str) -> Any:
    """The candidates of the same filter as JSON lines, streamed a chunk at a time."""
    tenant_id = request.team_session.tenant_id
    with tenant_scope(tenant_id):
        row = find_compile(request, compile)
        wanted = _filter(row, _filters_of(request)).annotate(slice_name=F("slice__name"))
    let_go()  # an open download holds no connection
    response = StreamingHttpResponse(_json_lines(wanted, tenant_id), content_type="application/x-ndjson")
    response["Content-Disposition"] = f'attachment; filename="{row.name}-{compile}.jsonl"'
    response["Cache-Control"] = "no-store"
    return response


async def _json_lines(rows: QuerySet[Candidate], tenant_id: UUID) -> AsyncIterator[bytes]:
    last: UUID | None = None
    while True:
        chunk = await query(_chunk)(rows, tenant_id, last)
        for row in chunk:
            yield json.dumps(CandidateShape.of(row), ensure_ascii=False, default=str).encode() + b"\n"
        if len(chunk) < CHUNK:
            return
        last = chunk[-1].id


def _chunk(rows: QuerySet[Candidate], tenant_id: UUID, last: UUID | None) -> list[Candidate]:
    with tenant_scope(tenant_id):
        part = rows if last is None else rows.filter(id__gt=last)
        return list(part.defer("embedding", "token_logprobs", "tokens").order_by("id")[:CHUNK])


def _page_address(request: ConsoleRequest, cursor: str) -> str:
    """The address of another page of the same filter."""
    if not cursor:
        return ""
    query = request.GET.copy()
    query["cursor"] = cursor
    return f"?{query.urlencode()}"


def _filters_of(request: ConsoleRequest) -> dict[str, str]:
    return {name: request.GET.get(name, "")[:100] for name in ("slice", "state", "origin", "reason", "cluster", "id")}


def _filter(row: Compile, asked: dict[str, str]) -> QuerySet[Candidate]:
    rows = Candidate.objects.of_tenant(row.tenant_id).filter(compile=row)
    if asked["slice"]:
        rows = rows.filter(slice_id=_id_or_none(asked["slice"], Prefix.SLICE))
    if asked["state"] in STATES:
        rows = rows.filter(state=asked["state"])
    if asked["origin"] in ORIGINS:
        rows = rows.filter(origin=asked["origin"])
    if asked["reason"] in REASONS:
        rows = rows.filter(reasons__contains=[asked["reason"]])
    if asked["cluster"].isascii() and asked["cluster"].isdigit() and len(asked["cluster"]) < 7:
        rows = rows.filter(cluster=int(asked["cluster"]))
    if asked["id"].startswith(f"{Prefix.SLICE}_"):
        rows = rows.filter(slice_id=_id_or_none(asked["id"], Prefix.SLICE))
    elif asked["id"]:
        rows = rows.filter(id=_id_or_none(asked["id"], Prefix.CANDIDATE))
    return rows


def _id_or_none(text: str, prefix: Prefix) -> UUID | None:
    """An id that cannot exist finds no rows."""
    try:
        return decode_id(prefix, text)
    except NotFound:
        return UUID(int=0)


def _counts(row: Compile) -> dict[str, int]:
    rows = Candidate.objects.of_tenant(row.tenant_id).filter(compile=row)
    counted = dict(rows.values_list("state").annotate(n=Count("id")).order_by())
    return {state: counted[state] for state in STATES if state in counted}


def _lines(rows: Any, slices: dict[UUID, str]) -> list[Line]:
    lines, left = [], MAX_PAGE_CHARS
    for row in rows:
        rest = row.text[CLIP_CHARS : CLIP_CHARS + max(0, min(MAX_SHOWN_CHARS, left))]
        left -= len(rest)
        lines.append(
            Line(
                row=row,
                id=encode_id(Prefix.CANDIDATE, row.id),
                slice=slices.get(row.slice_id, ""),
                slice_id=encode_id(Prefix.SLICE, row.slice_id),
                text=row.text[:CLIP_CHARS],
                rest=rest,
                is_cut=len(row.text) > CLIP_CHARS + len(rest),
                why=_why(row),
                votes=sorted(((str(k), int(v)) for k, v in row.votes.items()), key=lambda vote: -vote[1])[:5],
            )
        )
    return lines


def _why(row: Candidate) -> str:
    if row.state == CandidateState.REJECTED:
        return "for: " + ", ".join(REASONS.get(str(reason), str(reason)[:40]) for reason in row.reasons[:8])
    if row.state == CandidateState.UNVERIFIED and row.reasons:
        return "no teacher answer can be trained on: " + ", ".join(str(reason)[:80] for reason in row.reasons[:8])
    if row.state == CandidateState.DROPPED and row.cluster == -1:
        return "among the lowest scores, dropped before clustering"
    if row.bought_in is not None:
        return f"{WHY[CandidateState(row.state)]}; picked in round {row.bought_in} ({row.bought_for})"
    return WHY[CandidateState(row.state)]
