"""OpenAI's response object, whole and as the events of a stream: one message with one text."""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from gpu_runners.models.protocol import Delta
from gpu_runners.serving.openai.bodies.responses import ResponseCall
from gpu_runners.serving.openai.faults import Fault
from gpu_runners.serving.openai.shapes import Answer

_PLACE = {"output_index": 0, "content_index": 0}


@dataclass(slots=True)
class ResponseObject:
    """A response as it grows. `answer` is that of the chat which it stands for, and keeps text and counts."""

    call: ResponseCall
    answer: Answer
    id: str = field(default_factory=lambda: f"resp_{uuid4().hex}")
    message_id: str = field(default_factory=lambda: f"msg_{uuid4().hex}")
    n_events: int = 0

    def add(self, index: int, delta: Delta) -> None:
        self.answer.add(index, delta)

    def whole(self) -> dict[str, Any]:
        return self._object(self._status(), [self._message(self._status())])

    def events(self, index: int, delta: Delta) -> bytes:
        """The events of a delta; before the first one, those that open the message."""
        choice = self.answer.choices[index]
        opening = b"" if choice.n_deltas else self._opening()
        before = len(choice.text)
        self.answer.add(index, delta)
        text = choice.text[before:]
        if not text:
            return opening
        return opening + self._event("response.output_text.delta", self._in_part({"delta": text, "logprobs": []}))

    def last_events(self) -> bytes:
        status, part = self._status(), self._part(self._text())
        message = self._message(status)
        done = [
            self._event("response.output_text.done", self._in_part({"text": self._text(), "logprobs": []})),
            self._event("response.content_part.done", self._in_part({"part": part})),
            self._event("response.output_item.done", {"output_index": 0, "item": message}),
            self._event(f"response.{status}", {"response": self._object(status, [message])}),
        ]
        return b"".join(done)

    def fault_event(self, fault: Fault) -> bytes:
        """Too late for a status: it is in the stream, which ends here."""
        return self._event("error", {"code": fault.code, "message": fault.message, "param": fault.param})

    def _opening(self) -> bytes:
        begun = self._object("in_progress", [])
        message = self._message("in_progress") | {"content": []}
        return b"".join(
            [
                self._event("response.created", {"response": begun}),
                self._event("response.in_progress", {"response": begun}),
                self._event("response.output_item.added", {"output_index": 0, "item": message}),
                self._event("response.content_part.added", self._in_part({"part": self._part("")})),
            ]
        )

    def _event(self, kind: str, members: Mapping[str, Any]) -> bytes:
        body = {"type": kind, "sequence_number": self.n_events, **members}
        self.n_events += 1
        data = json.dumps(body, ensure_ascii=False, separators=(",", ":"))
        return f"event: {kind}\ndata: {data}\n\n".encode()

    def _in_part(self, members: Mapping[str, Any]) -> dict[str, Any]:
        return {"item_id": self.message_id, **_PLACE, **members}

    def _text(self) -> str:
        return self.answer.choices[0].text

    def _status(self) -> str:
        return "incomplete" if self.answer.choices[0].finish == "length" else "completed"

    def _part(self, text: str) -> dict[str, Any]:
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}

    def _message(self, status: str) -> dict[str, Any]:
        content = [self._part(self._text())]
        return {"id": self.message_id, "type": "message", "status": status, "role": "assistant", "content": content}

    def _object(self, status: str, output: list[dict[str, Any]]) -> dict[str, Any]:
        is_over = status != "in_progress"
        body = {
            "id": self.id,
            "object": "response",
            "created_at": self.answer.created,
            "completed_at": int(time.time()) if status == "completed" else None,
            "status": status,
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
            "model": self.answer.model,
            "output": output,
            **self.call.shown,
            "background": False,
            "parallel_tool_calls": True,
            "previous_response_id": None,
            "reasoning": {"effort": None, "summary": None},
            "service_tier": "default",
            "store": False,
            "tool_choice": "auto",
            "tools": [],
            "truncation": "disabled",
            "usage": self._usage() if is_over else None,
        }
        return body | {"kolm": self.answer.kolm} if self.answer.kolm and is_over else body

    def _usage(self) -> dict[str, Any]:
        usage = self.answer.usage()
        n_cached = usage["prompt_tokens_details"]["cached_tokens"]
        return {
            "input_tokens": usage["prompt_tokens"],
            "input_tokens_details": {"cached_tokens": n_cached, "cache_write_tokens": 0},
            "output_tokens": usage["completion_tokens"],
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": usage["total_tokens"],
            "kolm": usage["kolm"],
        }
