"""The comparison of up to eight compiles: how good each is for its cost, what their specs differ in, what came of
them."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from string import ascii_uppercase
from typing import Any

from django.http import HttpResponse
from django.shortcuts import render
from django.utils.safestring import SafeString

from backend.compiles.draft_savings import DraftSavings, savings_of_compile
from backend.compiles.models import Compile, StepRun
from backend.console.access import ConsoleRequest, page
from backend.console.charts import Outcome, trade_offs
from backend.console.compiles.draft_rows import figure_words
from backend.console.compiles.figures import WORDS, Costs, Floor, Step, costs, floors, timeline, took_s
from backend.console.compiles.slices import Pool, pools_of
from backend.console.templatetags.kolm import money, ppm_pct
from backend.domain.errors import InvalidInput, NotFound
from backend.domain.ids import Prefix, decode_id, encode_id
from backend.domain.lifecycle import STEPS
from backend.domain.roles import Permission

MOST = 8
MAX_DIFFERENCES = 100
MAX_SLICES = 40
MAX_VALUE = 160
WITH_SLICES = 2  # compiles whose selection is compared slice by slice: of more, no table could be read
_IN_ONE_PIECE = ("/examples/inline", "/captures/inline")  # lists of texts: told by their number


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One of them; `mark` is its name in the chart and in the heads of tables."""

    mark: str
    row: Compile
    id: str
    costs: Costs
    took_s: float | None
    steps: dict[str, Step]
    floors: dict[str, Floor]
    pools: dict[str, Pool]
    drafts: dict[str, str]
    accuracy: dict[str, Any] | None

    @property
    def answer_us(self) -> int | None:
        """The model's own time for an answer; of an older evaluation its wall time."""
        measured = self.accuracy or {}
        return (measured.get("own") or {}).get("own_us") or measured.get("latency_us_p50")


@page(Permission.VIEW)
def compile_compare(request: ConsoleRequest) -> HttpResponse:
    """`?ids=a,b,c`; also `?ids=a&ids=b`, as the list's form sends them, and `?compile=a&compile=b` of older links."""
    sides = _sides(request, _asked_ids(request))
    differences = list(shared_differences([side.row.spec for side in sides]))
    slices = list(dict.fromkeys(name for side in sides for name in side.pools))
    context = {
        "sides": sides,
        "address": f"?ids={','.join(side.id for side in sides)}",
        "differences": differences[:MAX_DIFFERENCES],
        "n_differences": len(differences),
        "steps": [(WORDS[name], [side.steps.get(name) for side in sides]) for name in STEPS],
        "floors": _floor_rows(sides),
        "slices": [(name, [side.pools.get(name) for side in sides]) for name in slices[:MAX_SLICES]],
        "n_slices": len(slices),
        "chart": _chart(sides),
    }
    return render(request, "console/compiles/compare.html", context)


def _asked_ids(request: ConsoleRequest) -> list[str]:
    asked = [id for text in request.GET.getlist("ids") for id in text.split(",")] + request.GET.getlist("compile")
    ids = list(dict.fromkeys(id.strip() for id in asked if id.strip()))
    if not 2 <= len(ids) <= MOST:
        message = f"Select two to {MOST} compiles in the list, then compare them; {len(ids)} are selected."
        raise InvalidInput(message, code="invalid_request")
    return ids


def _sides(request: ConsoleRequest, ids: Sequence[str]) -> list[Side]:
    """Raises NotFound, for another tenant's compile too."""
    tenant_id = request.team_session.tenant_id
    wanted = [decode_id(Prefix.COMPILE, id) for id in ids]
    rows = {row.id: row for row in Compile.objects.of_tenant(tenant_id).filter(id__in=wanted)}
    missing = next((id for id, key in zip(ids, wanted, strict=True) if key not in rows), None)
    if missing is not None:
        raise NotFound(f"There is no compile {missing[:60]!r} in {request.team_session.tenant_name}.")
    steps: dict[Any, list[StepRun]] = {id: [] for id in rows}
    for step in StepRun.objects.of_tenant(tenant_id).filter(compile_id__in=wanted).order_by("position"):
        steps[step.compile_id].append(step)
    with_slices = len(ids) <= WITH_SLICES
    return [
        _side(mark, rows[id], steps[id], with_slices=with_slices)
        for mark, id in zip(ascii_uppercase, wanted, strict=False)
    ]


def _side(mark: str, row: Compile, steps: Sequence[StepRun], *, with_slices: bool) -> Side:
    return Side(
        mark=mark,
        row=row,
        id=encode_id(Prefix.COMPILE, row.id),
        costs=costs(row),
        took_s=took_s(row),
        steps={step.row.name: step for step in timeline(steps)},
        floors={floor.name: floor for floor in floors(row)},
        pools={pool.row.name: pool for pool in pools_of(row)} if with_slices else {},
        drafts=figure_words(savings_of_compile(row.tenant_id, row.id) or DraftSavings()),
        accuracy=row.evaluation,
    )


def _chart(sides: Sequence[Side]) -> SafeString | None:
    """Accuracy with its interval against what was spent; None before any is evaluated."""
    outcomes = [
        Outcome(
            name=side.mark,
            label=side.row.name,
            cost=side.costs.spent,
            low=side.accuracy["accuracy_low_ppm"],
            value=side.accuracy["accuracy_ppm"],
            high=side.accuracy["accuracy_high_ppm"],
        )
        for side in sides
        if side.accuracy
    ]
    return trade_offs(outcomes, title="Accuracy against cost", write=ppm_pct, write_cost=money) if outcomes else None


def _floor_rows(sides: Sequence[Side]) -> list[tuple[str, list[Floor | None]]]:
    """Each floor by its name, in the order in which they are judged."""
    words = {floor.name: floor.word for side in sides for floor in side.floors.values()}
    return [(word, [side.floors.get(name) for side in sides]) for name, word in words.items()]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A difference at one place of the spec: "" where one of the two has nothing there."""

    pointer: str
    first: str
    second: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedDifference:
    """A place of the specs at which not all are alike, with the value of each: "" where it has nothing there."""

    pointer: str
    values: list[str]


def shared_differences(specs: Sequence[Any]) -> Iterator[SharedDifference]:
    """Place by place, in the order of the documents; each is compared with the first."""
    values: dict[str, list[str | None]] = {}
    for at, spec in enumerate(specs[1:], start=1):
        for one in spec_differences(specs[0], spec):
            row = values.setdefault(one.pointer, [one.first, *[None] * (len(specs) - 1)])
            row[at] = one.second
    for pointer, row in values.items():
        yield SharedDifference(pointer=pointer, values=[row[0] or "" if text is None else text for text in row])


def spec_differences(first: Any, second: Any, pointer: str = "") -> Iterator[Difference]:
    """Place by place, in the order of the document."""
    if first == second:
        return
    if pointer not in _IN_ONE_PIECE:
        if isinstance(first, dict) and isinstance(second, dict):
            for key in dict.fromkeys([*first, *second]):
                yield from spec_differences(first.get(key), second.get(key), f"{pointer}/{key}")
            return
        if isinstance(first, list) and isinstance(second, list):
            for at, (mine, theirs) in enumerate(zip_longest(first, second)):
                yield from spec_differences(mine, theirs, f"{pointer}/{at}")
            return
    yield Difference(pointer=pointer or "/", first=_as_text(first), second=_as_text(second))


def _as_text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, list) and len(value) > 3:
        return f"{len(value)} entries"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= MAX_VALUE else text[:MAX_VALUE] + "…"
