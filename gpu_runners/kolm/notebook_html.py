"""Answers as a notebook shows them: tables and quality cards. Every text is escaped, whoever wrote it; there is no
script, no style sheet and nothing that is fetched."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .rows import Compile, HeldoutAnswer, Output, Row

SHOWN_ROWS = 20
SHOWN_COLUMNS = 8
SHOWN_CHARS = 200  # of a cell
SHOWN_INPUT_CHARS = 2_000
SURE_PPM = 800_000  # as in backend.domain.evaluation.spans
UNSHOWN = frozenset({"raw", "secret"})
Span = tuple[int, int, str]  # first and last code point but one, and the words that it carries


def _words() -> Any:
    """The one form of numbers, imported when it is needed: a client that only asks stands on itself."""
    from backend.domain import number_words

    return number_words


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of cells that are HTML already."""
    head = "".join(f"<th>{escape(title)}</th>" for title in titles)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def row_html(row: "Row") -> str:
    """One answer, a member a line."""
    names = [name for name in _names(row) if getattr(row, name) not in (None, "", ())]
    return table(("", type(row).__name__), ((escape(name), value_html(name, getattr(row, name))) for name in names))


def rows_html(rows: Sequence["Row"]) -> str:
    """Answers, one a line, in their simple members."""
    if not rows:
        return "<p>Nothing.</p>"
    names = [name for name in _names(rows[0]) if any(_is_simple(getattr(row, name)) for row in rows)][:SHOWN_COLUMNS]
    shown = ([value_html(name, getattr(row, name)) for name in names] for row in rows[:SHOWN_ROWS])
    more = "<p>… and more</p>" if len(rows) > SHOWN_ROWS else ""
    return table(names, shown) + more


def value_html(name: str, value: Any) -> str:
    """A member's value in the form that its name says: money, shares, times."""
    if value is None:
        return ""
    if name.endswith("_microusd") and isinstance(value, int):
        return str(_words().usd(value))
    if name.endswith("_ppm") and isinstance(value, int):
        is_score = "score" in name or "confidence" in name
        return str(_words().score(value) if is_score else _words().percent(value))
    if name.endswith("_us") and isinstance(value, int):
        return str(_words().milliseconds(value))
    if isinstance(value, datetime):
        return escape(f"{value:%Y-%m-%d %H:%M:%S}")
    text = str(value)
    return escape(text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}…")


def compile_html(compile: "Compile") -> str:
    """Show how it stands, what it cost, the quality card, and what to do where the gate was missed."""
    score = "" if compile.k_score_ppm is None else f", K-score {_words().score(compile.k_score_ppm or 0)}"
    head = f"<p><b>{escape(compile.name)}</b> {escape(compile.id)}: {escape(compile.status)}{score}, "
    head += f"spent {_words().usd(compile.spent_microusd)}</p>"
    advice = str((compile.gate or {}).get("next_step") or "")
    failure = compile.failure.message if compile.failure else ""
    notes = "".join(f"<p>{escape(note)}</p>" for note in (failure, f"next: {advice}" if advice else "") if note)
    return head + card_html(compile.card) + notes


def card_html(card: Mapping[str, Any] | None) -> str:
    """The quality card: student, teacher and alternatives, a line each; "" where there is none."""
    if not card:
        return ""
    titles = ("quality card", "accuracy", "rows", "an answer", "1,000 answers")
    return table(titles, map(_card_row, card.get("rows", ())))


def _card_row(row: Mapping[str, Any]) -> tuple[str, ...]:
    words = _words()
    low, high = row.get("low_ppm"), row.get("high_ppm")
    interval = f" {words.interval(low, high)}" if low is not None and high is not None else ""
    accuracy = "–" if row.get("accuracy_ppm") is None else f"{words.percent(row['accuracy_ppm'])}{interval}"
    time = "–" if row.get("answer_us") is None else words.milliseconds(row["answer_us"])
    price = "–" if row.get("per_1000_microusd") is None else words.usd(row["per_1000_microusd"])
    return escape(str(row.get("words") or row.get("name"))), accuracy, escape(str(row.get("n") or "–")), time, price


def output_html(output: "Output") -> str:
    """The input with the places that were copied marked, and the answer."""
    return table(("input", "answer", "confidence"), [output_cells(output)])


def output_cells(output: "Output") -> tuple[str, str, str]:
    spans = [
        (one.start, one.end, f"{one.path} {_words().score(one.confidence_ppm)}")
        for one in output.fields
        if one.start is not None and one.end is not None
    ]
    answer = output.label if output.label is not None else output.output or ""
    doubt = " (unsure)" if output.is_unsure else ""
    confidence = "" if output.confidence is None else _words().score(round(output.confidence * 1_000_000))
    return mark_places(output.input or "", spans), f"<b>{escape(answer)}</b>{doubt}", confidence


def answer_html(answer: "HeldoutAnswer") -> str:
    """A held-out input with its marked places, gold and the answer."""
    spans = [
        (one["start"], one["end"], f"{one.get('path', '')} ({one.get('source', '')})")
        for one in answer.spans
        if isinstance(one.get("start"), int) and isinstance(one.get("end"), int)
    ]
    sign = "✗" if answer.is_wrong else "✓"
    cells = (sign, mark_places(answer.input, spans), escape(answer.gold), escape(answer.predicted))
    return table(("", "input", "gold", "answered"), [cells])


def mark_places(text: str, spans: Iterable[Span]) -> str:
    """The text with its places marked; where two overlap, the one that begins first stands.

    >>> mark_places("<b> to Berlin", [(7, 13, "/city")])
    '&lt;b&gt; to <mark title="/city">Berlin</mark>'
    """
    shown, parts, at = text[:SHOWN_INPUT_CHARS], [], 0
    for start, end, title in sorted(spans):
        if at <= start < end <= len(shown):
            parts += [escape(shown[at:start]), f'<mark title="{escape(title)}">{escape(shown[start:end])}</mark>']
            at = end
    rest = " …" if len(text) > len(shown) else ""
    return "".join([*parts, escape(shown[at:]), rest])


def _names(row: "Row") -> list[str]:
    return [each.name for each in fields(row) if each.name not in UNSHOWN]


def _is_simple(value: Any) -> bool:
    return isinstance(value, str | int | float | datetime) and value != ""
