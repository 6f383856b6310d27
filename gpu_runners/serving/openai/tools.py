"""Tool calls in an answer, by the convention of Hermes and Qwen: `<tool_call>{"name": ..., "arguments": {...}}
</tool_call>`. Whether a base follows it is read off its chat template; with another convention the text is passed on as
it is."""

import json
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

OPEN, CLOSE = "<tool_call>", "</tool_call>"


def takes_tools(template: str) -> bool:
    return "tools" in template


def is_hermes(template: str) -> bool:
    return OPEN in template


@dataclass(slots=True)
class ToolReader:
    """Holds back what may be a tool call; the text before the first one is content."""

    held: str = ""
    inside: bool = False

    def push(self, text: str) -> str:
        """The content that is certain now."""
        self.held += text
        if self.inside:
            return ""
        at = self.held.find(OPEN)
        if at >= 0:
            self.inside, at = True, len(self.held[:at].rstrip())
        else:
            at = len(self.held[: len(self.held) - _overlap(self.held)].rstrip())  # white space before a call is its own
        content, self.held = self.held[:at], self.held[at:]
        return content

    def finish(self) -> tuple[str, list[dict[str, Any]]]:
        """(content that was held back in vain, calls). An answer with one broken call is text as a whole."""
        calls = [_call(part) for part in self.held.split(OPEN)[1:]] if self.inside else []
        if self.inside and all(call is not None for call in calls):
            return "", [call for call in calls if call is not None]
        return self.held, []


def _call(part: str) -> dict[str, Any] | None:
    body, closed, rest = part.partition(CLOSE)
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not closed or rest.strip() or not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return None
    return tool_call(value["name"], json.dumps(value.get("arguments", {}), ensure_ascii=False))


def tool_call(name: str, arguments: str) -> dict[str, Any]:
    return {"id": f"call_{uuid4().hex[:24]}", "type": "function", "function": {"name": name, "arguments": arguments}}


def _overlap(text: str) -> int:
    return next((n for n in range(min(len(text), len(OPEN) - 1), 0, -1) if text.endswith(OPEN[:n])), 0)
