"""The thoughts of a model, kept apart from the answer that follows them.

Vendors keep thoughts in a field of their own (`reasoning_content`, `reasoning`), in parts of the content of type
"thinking", or in the text itself between two marks; a server whose chat template opens the thoughts gives only the
closing mark. The marks, as servers' parsers list them: `<think>` of most models, `[THINK]` of Magistral,
`<|START_THINKING|>` of Command, `◁think▷` of Kimi, `<seed:think>` of Seed-OSS, `<|channel>thought` of Gemma,
`<|inner_prefix|>` of Apertus, and `<|channel|>analysis<|message|>` of gpt-oss, whose answer is the channel `final`
(https://cookbook.openai.com/articles/openai-harmony).
"""

import re
from dataclasses import dataclass
from typing import Any

from workers.teachers.openai_compatible.logprobs import BadAnswer

_FIELDS = ("reasoning_content", "reasoning", "thinking")
_TAG = r"(?:seed:)?(?:think|thinking|thought|thoughts|reasoning|reflection)"
_MARKS = (  # of one kind: what opens, what closes
    (rf"<{_TAG}\s*>", rf"</{_TAG}\s*>"),
    (r"(?-i:\[THINK\])", r"(?-i:\[/THINK\])"),
    (r"◁think▷", r"◁/think▷"),
    (r"<\|START_THINKING\|>", r"<\|END_THINKING\|>(?:\s*<\|START_RESPONSE\|>)?|<\|START_RESPONSE\|>"),
    (
        r"(?:<\|start\|>assistant)?<\|channel\|>(?:analysis|commentary)[^<]{0,80}<\|message\|>",
        r"(?:<\|end\|>\s*)?(?:<\|start\|>assistant)?<\|channel\|>final[^<]{0,80}(?:<\|constrain\|>\w+)?<\|message\|>",
    ),
    (r"<\|channel>thought\b", r"<channel\|>"),
    (r"<\|(?:inner_prefix|begin_of_thought)\|>", r"<\|(?:inner_suffix|end_of_thought)\|>"),
    # of gpt-oss where a server drops the special tokens
    (r"(?-i:analysis(?=[A-Z][\s\S]*?assistantfinal))", r"(?-i:assistantfinal)"),
)
_KINDS = tuple((re.compile(rf"\s*(?:{start})", re.I), re.compile(rf"(?:{end})\s*", re.I)) for start, end in _MARKS)
_ANY_OPEN = re.compile("|".join(start for start, _ in _MARKS[:3]), re.I)
_ANY_CLOSED = "|".join(end for _, end in _MARKS[:-1])
# A closing mark alone, as a template leaves it: at the beginning of the text or of a line, right behind a word or the
# end of a sentence, or before an empty line. Between two spaces, quoted or in brackets it is what the text is about.
_CLOSED_ALONE = re.compile(
    rf"(?:^[ \t]*|(?<=[^\s\"'`“‘«<>(\[{{/])|(?=(?:{_ANY_CLOSED})[ \t]*\r?\n[ \t]*\r?\n))(?:{_ANY_CLOSED})\s*",
    re.I | re.M,
)
_END = re.compile(r"(?:<\|(?:END_RESPONSE|END_OF_TURN_TOKEN|return|end)\|>\s{0,9}){1,4}\Z", re.I)


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """The answer, and whether thoughts came before it. `is_cut_thought`: they were never ended, so there is none."""

    text: str
    has_thoughts: bool = False
    is_cut_thought: bool = False


def read_content(message: dict[str, Any]) -> Content:
    """The answer of one choice. A refusal or a tool call has none: an empty text. Raises BadAnswer for a content that
    is neither text nor parts."""
    content = message.get("content")
    thought_beside = any(isinstance(message.get(name), str) and message[name].strip() for name in _FIELDS)
    if isinstance(content, list):
        texts, thought_within = _parts(content)
        content, thought_beside = "".join(texts), thought_beside or thought_within
    if content is None:
        content = ""
    if not isinstance(content, str):
        raise BadAnswer("a choice's content is not text")
    answer = _without_thoughts(content)
    if answer is None:
        return Content(text="", has_thoughts=True, is_cut_thought=True)
    if answer != content:
        return Content(text=answer, has_thoughts=True)
    return Content(text=content, has_thoughts=thought_beside, is_cut_thought=thought_beside and not content.strip())


def _without_thoughts(content: str) -> str | None:
    """The text behind the thoughts; None where they are opened and never ended. Thoughts stand at the beginning: a pair
    of marks further on is quoted by the answer."""
    at = 0
    while (opened := _match_open(content, at)) is not None:
        closed = opened[1].search(content, opened[0])
        if closed is None:
            return None
        at = closed.end()
    text = content[at:]
    text = text[_last_alone(text) :]
    return _END.sub("", text) if text != content else content


def _match_open(content: str, at: int) -> tuple[int, re.Pattern[str]] | None:
    """The end of the mark that opens thoughts at a place, and what closes them."""
    for start, end in _KINDS:
        mark = start.match(content, at)
        if mark is not None:
            return mark.end(), end
    return None


def _last_alone(text: str) -> int:
    """The end of the last closing mark that stands alone: none whose own line opened it."""
    line, first = len(text) + 1, 0  # where the line of the mark before begins, and its first opening mark
    for mark in reversed(list(_CLOSED_ALONE.finditer(text))):
        if mark.start() < line:
            line = text.rfind("\n", 0, mark.start()) + 1
            start = _ANY_OPEN.search(text, line, mark.start())
            first = start.start() if start else len(text)
        if first >= mark.start():
            return mark.end()
    return 0


def _parts(parts: list[object]) -> tuple[list[str], bool]:
    texts: list[str] = []
    has_thoughts = False
    for part in parts:
        if not isinstance(part, dict):
            raise BadAnswer("a part of a choice's content is not an object")
        if part.get("type") in ("thinking", "reasoning"):
            has_thoughts = True
        elif isinstance(part.get("text"), str):
            texts.append(part["text"])
    return texts, has_thoughts
