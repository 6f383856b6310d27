"""Two compiles side by side: what their specs differ in, and what came of it."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from django.http import HttpResponse
from django.shortcuts import render
from django.utils.safestring import SafeString

from backend.compiles.draft_savings import DraftSavings, savings_of_compile
from backend.compiles.models import Compile, StepRun
from backend.console.access import ConsoleRequest, page
from backend.console.charts import intervals
from backend.console.compiles.draft_rows import figure_words
from backend.console.compiles.figures import Costs, Floor, Step, costs, floors, timeline, took_s
from backend.console.compiles.rows import find_compile
from backend.console.compiles.slices import Pool, pools_of
from backend.console.templatetags.kolm import ppm_pct
from backend.domain.errors import InvalidInput
from backend.domain.ids import Prefix, encode_id
from backend.domain.lifecycle import STEPS
from backend.domain.roles import Permission

MAX_DIFFERENCES = 100
MAX_SLICES = 40
MAX_VALUE = 160
_IN_ONE_PIECE = ("/examples/inline", "/captures/inline")  # lists of texts: told by their number


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One of the two."""

    row: Compile
    id: str
    costs: Costs
    took_s: float | None
    steps: dict[str, Step]
    floors: dict[str, Floor]
    pools: dict[str, Pool]
    drafts: dict[str, str]
    accuracy: dict[str, Any] | None


@page(Permission.VIEW)
def compile_compare(request: ConsoleRequest) -> HttpResponse:
    """`?compile=a&compile=b`, as the list's form sends them."""
    ids = list(dict.fromkeys(request.GET.getlist("compile")))
    if len(ids) != 2:
        raise InvalidInput("Select exactly two compiles in the list, then compare them.", code="invalid_request")
    first, second = (_side(find_compile(request, one)) for one in ids)
    differences = list(spec_differences(first.row.spec, second.row.spec))
    names = list(dict.fromkeys([*first.pools, *second.pools]))
    context = {
        "first": first,
        "second": second,
        "differences": differences[:MAX_DIFFERENCES],
        "n_differences": len(differences),
        "steps": [(name, first.steps.get(name), second.steps.get(name)) for name in STEPS],
        "floors": _pair_by_name(list(first.floors.values()), list(second.floors.values())),
        "slices": [(name, first.pools.get(name), second.pools.get(name)) for name in names[:MAX_SLICES]],
        "n_slices": len(names),
        "accuracies": [first.accuracy, second.accuracy],
        "interval_chart": _intervals(first, second),
    }
    return render(request, "console/compiles/compare.html", context)


def _side(row: Compile) -> Side:
    steps = timeline(list(StepRun.objects.of_tenant(row.tenant_id).filter(compile=row).order_by("position")))
    pools = pools_of(row)
    return Side(
        row=row,
        id=encode_id(Prefix.COMPILE, row.id),
        costs=costs(row),
        took_s=took_s(row),
        steps={step.row.name: step for step in steps},
        floors={floor.name: floor for floor in floors(row)},
        pools={pool.row.name: pool for pool in pools},
        drafts=figure_words(savings_of_compile(row.tenant_id, row.id) or DraftSavings()),
        accuracy=row.evaluation,
    )


def _intervals(first: Side, second: Side) -> SafeString | None:
    """Both accuracies with their intervals on one scale."""
    rows = [
        (f"{name} · {side.row.name}", *(side.accuracy[f"accuracy{end}_ppm"] for end in ("_low", "", "_high")))
        for name, side in (("A", first), ("B", second))
        if side.accuracy
    ]
    return intervals(rows, title="Accuracy", write=ppm_pct, high=1_000_000) if rows else None


def _pair_by_name(first: Sequence[Floor], second: Sequence[Floor]) -> list[tuple[Floor | None, Floor | None]]:
    """Pair by name, in the order in which they are judged."""
    names = list(dict.fromkeys([floor.name for floor in (*first, *second)]))
    mine, theirs = ({floor.name: floor for floor in side} for side in (first, second))
    return [(mine.get(name), theirs.get(name)) for name in names]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A difference at one place of the spec: "" where one of the two has nothing there."""

    pointer: str
    first: str
    second: str


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
