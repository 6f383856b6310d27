"""Reads kolm's own prompts back into what they ask: the inverse of `prompts`, for the grammar teacher that stands
where a language model would.

Only lines outside fences count; nothing a customer's text says inside one can pass for a `Task:` or `Labels:` line.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from workers.teachers.grammar.answers import read_schema
from workers.teachers.grammar.judge_reader import NUMBER_ASKS, AskedNumbers, read_numbers_asked
from workers.teachers.grammar.refusal import NotOurPrompt
from workers.teachers.prompts.answer import ANSWER_JSON_ASK, ANSWER_TEXT_ASK
from workers.teachers.prompts.candidate_and_label import CANDIDATE_ASK, LABEL_ASK, unfence
from workers.teachers.prompts.pairwise import PAIRWISE_ASK

LONGEST = 2_000  # characters of a text answer, where the prompt does not say


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedAnswer:
    """The answer to a json task (`schema`) or a text task; with `pair`, which of two is the better."""

    schema: dict[str, Any] | None
    longest: int
    pair: tuple[str, str] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPrompt:
    """`text` is None when a new message of `slice_name` is asked for, else the message to label or, with `answer`, to
    answer. `meanings` has what the prompt says of a label, "" where it says nothing. `exemplars` are the fenced
    examples of a slice. `drafts` is the JSON of those to be judged, `numbers` what is asked about numbered texts; None
    where no judge is asked."""

    task: str
    labels: tuple[str, ...]
    meanings: tuple[str, ...]
    slice_name: str
    hint: str
    label: str | None
    exemplars: tuple[str, ...]
    text: str | None
    numbers: AskedNumbers | None = None
    answer: AskedAnswer | None = None


def read_prompt(content: str) -> ReadPrompt:
    lines = [line for line, _ in _open_lines(content)]
    if {ANSWER_JSON_ASK, ANSWER_TEXT_ASK, PAIRWISE_ASK} & set(lines):
        return _read_answer_prompt(content, lines)
    labels = tuple(name for name in _field(lines, "Labels").split(" | ") if name)
    if NUMBER_ASKS & set(lines):
        return _read_numbers_prompt(content, lines, labels)
    if not {CANDIDATE_ASK, LABEL_ASK} & set(lines):
        raise NotOurPrompt("this model answers kolm's own prompts only")
    asks_label = LABEL_ASK in lines and "Message:" in lines
    fenced = unfence(content)
    if asks_label and (len(fenced) != 1 or not labels):
        raise NotOurPrompt("a label prompt holds a `Labels:` line and exactly one fenced message")
    return ReadPrompt(
        task=_field(lines, "Task"),
        labels=labels,
        meanings=tuple(_field(lines, f"- {label}") for label in labels),
        slice_name=_field(lines, "Slice"),
        hint=_field(lines, "Hint"),
        label=_field(lines, "Label") or None,
        exemplars=() if asks_label else fenced,
        text=fenced[0] if asks_label else None,
    )


def _read_numbers_prompt(content: str, lines: list[str], labels: tuple[str, ...]) -> ReadPrompt:
    if {CANDIDATE_ASK, LABEL_ASK} & set(lines) or len(NUMBER_ASKS & set(lines)) != 1:
        raise NotOurPrompt("a question about numbered texts asks for nothing else")
    return ReadPrompt(
        task=_field(lines, "Task"),
        labels=labels,
        meanings=(),
        slice_name="",
        hint="",
        label=None,
        exemplars=(),
        text=None,
        numbers=read_numbers_asked(lines, unfence(content)),
    )


def _read_answer_prompt(content: str, lines: list[str]) -> ReadPrompt:
    fenced = unfence(content)
    is_pair = PAIRWISE_ASK in lines
    if len(fenced) != (3 if is_pair else 1) or "Message:" not in lines:
        raise NotOurPrompt("an answer prompt holds one fenced message, a pairwise prompt also two fenced answers")
    schema = read_schema(_field(lines, "Schema")) if _field(lines, "Answer") == "json" else None
    if schema is None and ANSWER_JSON_ASK in lines:
        raise NotOurPrompt("a prompt for JSON holds a `Schema:` line")
    longest = re.match(r"[0-9]{1,6}", _field(lines, "Longest answer"))
    return ReadPrompt(
        task=_field(lines, "Task"),
        labels=(),
        meanings=(),
        slice_name="",
        hint="",
        label=None,
        exemplars=(),
        text=fenced[0],
        answer=AskedAnswer(
            schema=schema,
            longest=int(longest[0]) if longest else LONGEST,
            pair=(fenced[1], fenced[2]) if is_pair else None,
        ),
    )


def split_echo(prompt: str) -> tuple[str, str]:
    """(prompt, text to score) of a `/v1/completions` prompt: the text starts after the ask and a blank line."""
    for line, end in _open_lines(prompt):
        if line in (CANDIDATE_ASK, LABEL_ASK, ANSWER_JSON_ASK, ANSWER_TEXT_ASK) and prompt.startswith("\n\n", end):
            return prompt[: end + 2], prompt[end + 2 :]
    raise NotOurPrompt("no kolm prompt is followed by a blank line and a text")


def _field(lines: list[str], name: str) -> str:
    for line in lines:
        if line.startswith(f"{name}: "):
            return line[len(name) + 2 :].strip()
    return ""


def _open_lines(content: str) -> Iterator[tuple[str, int]]:
    """(line, where it ends) of each line outside every fence. An unclosed bar opens no fence, as in `unfence`."""
    lines = content.split("\n")
    ends = []
    at = -1
    for line in lines:
        at += len(line) + 1
        ends.append(at)
    i = 0
    while i < len(lines):
        if len(lines[i]) >= 3 and not lines[i].strip("~") and lines[i] in lines[i + 1 :]:
            i = lines.index(lines[i], i + 1) + 1
            continue
        yield lines[i], ends[i]
        i += 1
