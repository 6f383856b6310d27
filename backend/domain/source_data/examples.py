"""Rows under a mapping as examples, as an upload holds them; what cannot be one is told by its reason."""

import json
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from backend.domain.answers.json_values import MAX_CHARS
from backend.domain.source_data.columns import SIDE_OF, VALIDATION, ColumnMapping, cell_text
from backend.domain.source_data.records import INVISIBLE, Record, RowProblem
from backend.domain.spec.fields import MAX_TEXT_CHARS
from backend.domain.spec.gold import HELDOUT, TRAIN
from backend.domain.unicode_forms import unicode_form

MAX_GROUP = 200
EXCERPT_CHARS = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceExample:
    """One row with its input and its answer; `output` is None where the file has inputs alone. It is a `spec.gold.Gold`
    where it has an answer."""

    number: int
    input: str
    output: str | None
    group: str | None = None
    split: str | None = None

    def to_json(self) -> dict[str, str]:
        """The row of an upload; what is None is left out."""
        row = {"input": self.input, "output": self.output, "group": self.group, "split": self.split}
        return {name: value for name, value in row.items() if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceExamples:
    rows: tuple[SourceExample, ...]
    problems: tuple[RowProblem, ...]
    notes: tuple[str, ...] = ()


def examples_of(
    records: Sequence[Record], mapping: ColumnMapping, *, label_names: Mapping[str, Sequence[str]] | None = None
) -> SourceExamples:
    """The examples in the records' order. White space at the ends, control characters and halves of surrogate pairs are
    dropped from texts; a row without an input, or without the answer that others have, is a problem."""
    names = (label_names or {}).get(mapping.output or "", ())
    sides = _sides(records, mapping)
    read = [_example(record, mapping, names, sides) for record in records]
    rows = [row for row in read if isinstance(row, SourceExample)]
    problems = [row for row in read if isinstance(row, RowProblem)]
    notes = []
    if VALIDATION & {_side_word(record, mapping) for record in records}:
        use = "trains" if HELDOUT in {sides[word] for word in sides if word not in VALIDATION} else "is held out"
        notes.append(f"the part for validation {use}")
    return SourceExamples(rows=tuple(rows), problems=tuple(problems), notes=tuple(notes))


def _sides(records: Sequence[Record], mapping: ColumnMapping) -> dict[str, str]:
    """The side of each word in the split's column. A data set with a test part trains on its part for validation; one
    without holds that out."""
    words = {_side_word(record, mapping) for record in records}
    has_test = any(SIDE_OF.get(word) == HELDOUT for word in words)
    return {**SIDE_OF, **dict.fromkeys(VALIDATION, TRAIN if has_test else HELDOUT)}


def _side_word(record: Record, mapping: ColumnMapping) -> str:
    return "" if mapping.split is None else cell_text(record.values.get(mapping.split)).strip().casefold()


def _example(
    record: Record, mapping: ColumnMapping, names: Sequence[str], sides: Mapping[str, str]
) -> SourceExample | RowProblem:
    parts = (_clean(cell_text(record.values.get(name))) for name in mapping.inputs)
    text = "\n".join(part for part in parts if part)
    output = None if mapping.output is None else _answer(record.values.get(mapping.output), names)
    reason = _reason(text, output, has_answers=mapping.output is not None)
    word = _side_word(record, mapping)
    if not reason and word and word not in sides:
        reason = f"has a split “{word[:40]}” that is neither train nor test"
    if reason:
        excerpt = " | ".join(cell_text(value) for value in record.values.values())
        return RowProblem(number=record.number, reason=reason, excerpt=_clean(excerpt)[:EXCERPT_CHARS])
    group = _clean(cell_text(record.values.get(mapping.group))) if mapping.group is not None else ""
    return SourceExample(
        number=record.number, input=text, output=output, group=group[:MAX_GROUP] or None, split=sides.get(word)
    )


def _reason(text: str, output: str | None, *, has_answers: bool) -> str:
    if not text:
        return "has no input"
    if len(text) > MAX_TEXT_CHARS:
        return f"has an input of more than {MAX_TEXT_CHARS:,} characters"
    if has_answers and not output:
        return "has no answer"
    if output is not None and len(output) > MAX_CHARS:
        return f"has an answer of more than {MAX_CHARS:,} characters"
    return ""


def _answer(value: Any, names: Sequence[str]) -> str:
    if names and isinstance(value, int) and not isinstance(value, bool):
        return names[value] if 0 <= value < len(names) else ""  # -1 is "no label" in data sets
    return _clean(cell_text(value))


def _clean(text: str) -> str:
    """Drop what no upload may hold. Line breaks, tabs, emojis and marks of writing direction stay."""
    if text.isascii() and text.isprintable():
        return text.strip()
    text = INVISIBLE.sub("", text)
    return "".join(char for char in text if char in "\n\t" or unicodedata.category(char) not in ("Cc", "Cs")).strip()


def fold_labels(rows: Iterable[SourceExample]) -> tuple[tuple[SourceExample, ...], dict[str, str]]:
    """Labels in the form that a spec takes, and which spelling became which: "Refund" and "refund " are one label, in
    the spelling that is more frequent (the first of two); "a|b" is "a/b"."""
    rows = tuple(rows)
    counts = Counter(_label_form(row.output or "") for row in rows)
    best: dict[str, str] = {}
    for name, _ in counts.most_common():
        best.setdefault(name.casefold(), name)
    folded = tuple(_with_output(row, best[_label_form(row.output or "").casefold()]) for row in rows)
    changed = {row.output or "": new.output or "" for row, new in zip(rows, folded, strict=True) if row != new}
    return folded, changed


def _label_form(text: str) -> str:
    return " ".join(unicode_form("NFC", text).replace("|", "/").split())[:80].strip()


def _with_output(row: SourceExample, output: str) -> SourceExample:
    if row.output == output:
        return row
    return SourceExample(number=row.number, input=row.input, output=output, group=row.group, split=row.split)


def is_json_object(text: str) -> bool:
    if not text.startswith("{"):
        return False
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False
