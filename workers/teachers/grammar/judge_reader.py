"""Reads the questions about numbered texts back: a judge's about the drafts of many slices, and an audit's."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from workers.teachers.grammar.refusal import NotOurPrompt
from workers.teachers.prompts.judge import ACCEPTED, SLICES_JUDGE_ASK, SLICES_JUDGE_JSON_ASK
from workers.teachers.prompts.judge_audit import AUDIT_ASK, AUDIT_JSON_ASK, MISPLACED

_SLICE = re.compile(r"([A-Z]+)\. Slice: ?(.*)")
_HEADING = re.compile(r"Drafts of slice ([A-Z]+), .*:")
_NUMBERED = re.compile(r'([1-9][0-9]{0,5}) (".*")')
NUMBER_ASKS = frozenset({SLICES_JUDGE_ASK, SLICES_JUDGE_JSON_ASK, AUDIT_ASK, AUDIT_JSON_ASK})


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberedTexts:
    """The numbered texts that are said to be of one slice."""

    slice_name: str
    hint: str
    label: str | None
    texts: tuple[tuple[int, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedNumbers:
    """A question whose answer is numbers: of the texts that their slices' grammars write, or (`asks_misplaced`) of the
    others. `member` is the name under which a JSON object holds them, "" where they stand alone."""

    parts: tuple[NumberedTexts, ...]
    asks_misplaced: bool
    member: str


def read_numbers_asked(lines: Sequence[str], fenced: Sequence[str]) -> AskedNumbers:
    """The question in the lines outside every fence and the fenced texts, in order. Raises NotOurPrompt."""
    asks_misplaced = bool({AUDIT_ASK, AUDIT_JSON_ASK} & set(lines))
    parts = _audit_parts(lines, fenced) if asks_misplaced else _judge_parts(lines, fenced)
    numbers = [number for part in parts for number, _ in part.texts]
    if not numbers or numbers != list(range(1, len(numbers) + 1)):
        raise NotOurPrompt("the texts to be judged are numbered from 1")
    as_json = bool({SLICES_JUDGE_JSON_ASK, AUDIT_JSON_ASK} & set(lines))
    member = (MISPLACED if asks_misplaced else ACCEPTED) if as_json else ""
    return AskedNumbers(parts=parts, asks_misplaced=asks_misplaced, member=member)


def _audit_parts(lines: Sequence[str], fenced: Sequence[str]) -> tuple[NumberedTexts, ...]:
    if len(fenced) != 1:
        raise NotOurPrompt("an audit's prompt holds one fence of messages")
    return (_part(_fields(lines), _numbered_texts(fenced[0])),)


def _judge_parts(lines: Sequence[str], fenced: Sequence[str]) -> tuple[NumberedTexts, ...]:
    """Every fence stands behind the heading of its slice."""
    slices: dict[str, dict[str, str]] = {}
    headings: list[str] = []
    for at, line in enumerate(lines):
        if (opened := _SLICE.fullmatch(line)) is not None:
            slices[opened[1]] = {"Slice": opened[2].strip()} | _fields(lines[at + 1 : at + 3])
        elif (heading := _HEADING.fullmatch(line)) is not None:
            headings.append(heading[1])
    if len(headings) != len(fenced) or not set(headings) <= slices.keys():
        raise NotOurPrompt("each fence of drafts has a heading that names a slice of the prompt")
    return tuple(_part(slices[mark], _numbered_texts(text)) for mark, text in zip(headings, fenced, strict=True))


def _fields(lines: Sequence[str]) -> dict[str, str]:
    """The lines of one slice as {name: value}; they end where another begins."""
    fields: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(": ")
        if _SLICE.fullmatch(line):
            break
        if name in ("Slice", "Hint", "Label"):
            fields[name] = value.strip()
    return fields


def _part(fields: dict[str, str], texts: tuple[tuple[int, str], ...]) -> NumberedTexts:
    return NumberedTexts(
        slice_name=fields.get("Slice", ""),
        hint=fields.get("Hint", ""),
        label=fields.get("Label") or None,
        texts=texts,
    )


def _numbered_texts(fenced: str) -> tuple[tuple[int, str], ...]:
    texts: list[tuple[int, str]] = []
    for line in fenced.split("\n"):
        match = _NUMBERED.fullmatch(line)
        try:
            text = json.loads(match[2]) if match else None
        except ValueError:
            text = None
        if match is None or not isinstance(text, str):
            raise NotOurPrompt("a draft is a line of a number and a JSON text")
        texts.append((int(match[1]), text))
    return tuple(texts)
