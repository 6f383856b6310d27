"""The held-out answers of a compile: which are wrong, the worst field or label, and what is taken for what."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django.http import HttpResponse
from django.shortcuts import render

from backend.compiles.heldout import AnswerPage, Confusions, confusions_of, heldout_answers, page_of_answers
from backend.compiles.models import Compile
from backend.console.access import ConsoleRequest, page
from backend.console.compiles.figures import confusion_chart
from backend.console.compiles.rows import find_compile
from backend.console.marked_text import Piece, pieces
from backend.domain.errors import Conflict
from backend.domain.evaluation.differences import Difference, value_text
from backend.domain.evaluation.heldout_answers import HeldoutAnswer
from backend.domain.evaluation.wrong_answers import AnswerFilter, ValueConfusion
from backend.domain.ids import Prefix, encode_id
from backend.domain.roles import Permission

PAGE_SIZE = 25
FEW = 10  # of each, on the compile's own page
MAX_PARTS = 60
MAX_CONFUSIONS = 20
MAX_INPUT_CHARS = 800  # of one input; the API has all of it
MAX_ANSWER_CHARS = 400
MAX_VALUE_CHARS = 120
MAX_DIFFERENCES = 8  # of one row
MAX_VALUES = 6  # of one side of one difference
SHOWN = {"true": True, "false": False, "any": None}  # `wrong` in the address, as in the API's; the first is the default
FILTERS = {"label": ("label", "gold", "predicted"), "json": ("field", "gold", "predicted", "check"), "text": ("check",)}


@dataclass(frozen=True, slots=True, kw_only=True)
class DifferenceLine:
    field: str
    href: str
    is_order: bool
    gold: str
    predicted: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerLine:
    """One row of the table; `n_more` differences are not shown."""

    answer: HeldoutAnswer
    pieces: list[Piece]
    is_cut: bool
    differences: list[DifferenceLine]
    n_more: int
    gold: str
    predicted: str


@page(Permission.VIEW)
def compile_answers(request: ConsoleRequest, compile: str) -> HttpResponse:
    row = find_compile(request, compile)
    context: dict[str, Any] = {"row": row, "id": encode_id(Prefix.COMPILE, row.id)}
    context["api_path"] = f"/v1/compiles/{context['id']}/answers?wrong=true"
    try:
        confusions = confusions_of(row)
    except Conflict as early:
        return render(request, "console/compiles/answers.html", context | {"early": early.message})
    asked = _filters_of(request, confusions.task)
    return render(request, "console/compiles/answers.html", context | _context(request, row, confusions, asked))


def wrong_part(row: Compile) -> dict[str, Any]:
    """The worst of the answers page, for a page that links it: `early` says why there is none yet."""
    try:
        confusions = confusions_of(row)
    except Conflict as early:
        return {"early": early.message}
    answers = heldout_answers(row)
    walked = page_of_answers(answers, AnswerFilter.of_task(answers.output, is_wrong=True), limit=FEW, after=None)
    return {
        "confusions": confusions,
        "worst": confusions.worst,
        "parts": [(part, _address({_part_name(confusions): part.name})) for part in confusions.parts[:FEW]],
        "confused": [_confusion(one) for one in confusions.counts.confusions[:FEW]],
        "lines": [_line(one) for one in walked.answers],
    }


def _filters_of(request: ConsoleRequest, task: str) -> dict[str, str]:
    """The filters in the address that this kind of task has; an empty one of a form is none, but for a label that was
    not answered."""
    present = {name: request.GET[name][:1000] for name in FILTERS[task] if name in request.GET}
    return {name: text for name, text in present.items() if text or (task == "label" and name == "predicted")}


def _context(request: ConsoleRequest, row: Compile, confusions: Confusions, asked: dict[str, str]) -> dict[str, Any]:
    shown = request.GET.get("wrong", "true")
    shown = shown if shown in SHOWN else "true"
    answers = heldout_answers(row)
    wanted = AnswerFilter.of_task(answers.output, is_wrong=SHOWN[shown], **asked)
    after, before = _cursor(request.GET.get("cursor", ""))
    walked = page_of_answers(answers, wanted, limit=PAGE_SIZE, after=after, before=before)
    n_of = {"true": confusions.counts.n_wrong, "false": confusions.counts.n - confusions.counts.n_wrong}
    return {
        "confusions": confusions,
        "worst": confusions.worst,
        "parts": [(part, _address({_part_name(confusions): part.name})) for part in confusions.parts[:MAX_PARTS]],
        "confused": [_confusion(one) for one in confusions.counts.confusions[:MAX_CONFUSIONS]],
        "matrix": confusion_chart(row.evaluation or {}) if confusions.task == "label" else None,
        "checks": sorted(confusions.counts.by_check),
        "tabs": [
            (word, _address({**asked, "wrong": value}), value == shown, n_of.get(value, confusions.counts.n))
            for word, value in (("wrong", "true"), ("right", "false"), ("all", "any"))
        ],
        "asked": asked,
        "shown": shown,
        "lines": [_line(one) for one in walked.answers],
        **_neighbours({**asked, "wrong": shown}, walked, after=after, before=before),
    }


def _part_name(confusions: Confusions) -> str:
    return "label" if confusions.task == "label" else "field"


def _confusion(one: ValueConfusion) -> dict[str, Any]:
    gold, predicted = one.typed
    query = {"gold": gold, "predicted": predicted} | ({"field": one.field} if one.field else {})
    return {
        "field": one.field,
        "gold": _shown_value(one.gold),
        "predicted": _shown_value(one.predicted),
        "count": one.count,
        "href": _address(query),
    }


def _line(answer: HeldoutAnswer) -> AnswerLine:
    return AnswerLine(
        answer=answer,
        pieces=pieces(answer.input[:MAX_INPUT_CHARS], answer.spans),
        is_cut=len(answer.input) > MAX_INPUT_CHARS,
        differences=[_difference(one) for one in answer.differences[:MAX_DIFFERENCES]],
        n_more=max(0, len(answer.differences) - MAX_DIFFERENCES),
        gold=_clip(answer.gold, MAX_ANSWER_CHARS),
        predicted=_clip(answer.predicted, MAX_ANSWER_CHARS),
    )


def _difference(one: Difference) -> DifferenceLine:
    gold, predicted = (_values(side) for side in (one.gold, one.predicted))
    return DifferenceLine(
        field=one.field,
        href=_address({"field": one.field}),
        is_order=one.kind == "order",
        gold=gold,
        predicted=predicted,
    )


def _values(values: Sequence[Any]) -> str:
    """Some values of one side as JSON; "" for none."""
    texts = [_clip(value_text(value), MAX_VALUE_CHARS) for value in values[:MAX_VALUES]]
    return ", ".join(texts) + (f" and {len(values) - MAX_VALUES} more" if len(values) > MAX_VALUES else "")


def _shown_value(value: Any) -> str:
    """A value of a confusion; "" where it is absent."""
    return "" if value is None else value if isinstance(value, str) else value_text(value)


def _clip(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _cursor(text: str) -> tuple[int | None, int | None]:
    """The row behind which the page begins and the one ahead of which it ends, as the address has them: `12`, `-12`;
    one that is no number begins at the beginning."""
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) < 10):
        return None, None
    return (None, int(digits)) if text.startswith("-") else (int(digits), None)


def _neighbours(
    query: Mapping[str, str], walked: AnswerPage, *, after: int | None, before: int | None
) -> dict[str, str]:
    """The addresses of the pages before and after this one; "" where there is none."""
    if not walked.answers:
        return {"before": "", "after": ""}
    first, last = walked.answers[0].row, walked.answers[-1].row
    has_before, has_after = (walked.has_more, True) if before is not None else (after is not None, walked.has_more)
    return {
        "before": _address({**query, "cursor": f"-{first}"}) if has_before else "",
        "after": _address({**query, "cursor": str(last)}) if has_after else "",
    }


def _address(query: Mapping[str, str]) -> str:
    return f"?{urlencode(query)}"
