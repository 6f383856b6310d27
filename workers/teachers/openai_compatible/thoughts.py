"""The thoughts of a model, kept apart from the answer that follows them.

Vendors keep thoughts in a field of their own (`reasoning_content`, `reasoning`), in parts of the content of type
"thinking", or in the text itself between `<think>` and `</think>`; a server whose chat template opens the thoughts
gives only the closing mark.
"""

import re
from dataclasses import dataclass
from typing import Any

from workers.teachers.openai_compatible.logprobs import BadAnswer

_FIELDS = ("reasoning_content", "reasoning", "thinking")
_OPEN = re.compile(r"\s*<(think|thinking|thought|reasoning)>", re.IGNORECASE)
_CLOSED = re.compile(r"</(?:think|thinking|thought|reasoning)>\s*", re.IGNORECASE)


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
    ends = list(_CLOSED.finditer(content))
    if ends:
        return Content(text=content[ends[-1].end() :], has_thoughts=True)
    if _OPEN.match(content):
        return Content(text="", has_thoughts=True, is_cut_thought=True)
    return Content(text=content, has_thoughts=thought_beside, is_cut_thought=thought_beside and not content.strip())


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
