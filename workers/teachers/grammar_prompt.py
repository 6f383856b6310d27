"""Reads kolm's own prompts back into what they ask: the inverse of `prompts`, for the grammar teacher that stands
where a language model would.

Only lines outside fences count; nothing a customer's text says inside one can pass for a `Task:` or `Labels:` line.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from workers.teachers.judge_prompt import JUDGE_ASK
from workers.teachers.prompts import CANDIDATE_ASK, LABEL_ASK, unfence


class NotOurPrompt(ValueError):
    """The prompt is not one of kolm's three; the grammar teacher answers no other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """`text` is None when a new message of `slice_name` is asked for, else the message to label. `meanings` has what
    the prompt says of a label, "" where it says nothing. `exemplars` are the fenced examples of a slice. `drafts` is
    the JSON of those to be judged, None where no judge is asked."""

    task: str
    labels: tuple[str, ...]
    meanings: tuple[str, ...]
    slice_name: str
    hint: str
    label: str | None
    exemplars: tuple[str, ...]
    text: str | None
    drafts: str | None = None


def read_prompt(content: str) -> Asked:
    lines = [line for line, _ in _open_lines(content)]
    labels = tuple(name for name in _field(lines, "Labels").split(" | ") if name)
    if not {CANDIDATE_ASK, LABEL_ASK, JUDGE_ASK} & set(lines):
        raise NotOurPrompt("this model answers kolm's candidate, label and judge prompts only")
    asks_label = LABEL_ASK in lines and "Message:" in lines
    asks_judge = JUDGE_ASK in lines
    fenced = unfence(content)
    if asks_label and (len(fenced) != 1 or not labels):
        raise NotOurPrompt("a label prompt holds a `Labels:` line and exactly one fenced message")
    if asks_judge and (asks_label or not fenced):
        raise NotOurPrompt("a judge prompt holds fenced drafts, and asks for nothing else")
    return Asked(
        task=_field(lines, "Task"),
        labels=labels,
        meanings=tuple(_field(lines, f"- {label}") for label in labels),
        slice_name=_field(lines, "Slice"),
        hint=_field(lines, "Hint"),
        label=_field(lines, "Label") or None,
        exemplars=() if asks_label else fenced[:-1] if asks_judge else fenced,
        text=fenced[0] if asks_label else None,
        drafts=fenced[-1] if asks_judge else None,
    )


def split_echo(prompt: str) -> tuple[str, str]:
    """(prompt, text to score) of a `/v1/completions` prompt: the text starts after the ask and a blank line."""
    for line, end in _open_lines(prompt):
        if line in (CANDIDATE_ASK, LABEL_ASK) and prompt.startswith("\n\n", end):
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
