"""OpenAI's interface of `kolm serve` over one student on an encoder, apart from the server that carries it."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gpu_runners.artifacts.encoder_student import EncoderModel, StudentAnswer
from gpu_runners.serving.openai.bodies import chat_call, read_json
from gpu_runners.serving.openai.faults import Fault, fault_of
from gpu_runners.serving.openai.responder import Refusal
from gpu_runners.serving.openai.shapes import DONE, event_of
from gpu_runners.serving.openai.student_answers import no_completions, openai_answer, student_input


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    status: int
    content_type: str
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class OneStudent:
    """`name` is what callers name as `model`; `answer` takes its turn at the student."""

    name: str
    student: EncoderModel
    answer: Callable[[str], StudentAnswer]
    created: int

    def models(self) -> dict[str, Any]:
        row = {"id": self.name, "object": "model", "created": self.created, "owned_by": "kolm"}
        return {"object": "list", "data": [row]}

    def chat(self, body: bytes) -> Reply:
        """Answer the body of a chat, whole or as a stream of one chunk."""
        try:
            call = chat_call(read_json(body))
            if call.model != self.name:
                raise Refusal(404, "model_not_found", f"Here is one model, {self.name!r}.")
            answered = self.answer(student_input(call, self.student))
        except Exception as error:  # noqa: BLE001 - the edge: what nobody foresaw is a 500; its words are not told
            return refusal_reply(fault_of(error))
        answer = openai_answer(answered, model=self.name)
        if not call.sampling.stream:
            answer.add(0, answered.delta)
            return _json(200, answer.whole())
        with_usage = call.sampling.include_usage
        events = [event_of(answer.chunk(0, answered.delta, with_usage=with_usage))]
        events += [event_of(answer.usage_chunk())] if with_usage else []
        return Reply(status=200, content_type="text/event-stream", data=b"".join([*events, DONE]))

    def completions(self) -> Reply:
        return refusal_reply(fault_of(no_completions()))


def refusal_reply(fault: Fault) -> Reply:
    return _json(fault.status, fault.body)


def _json(status: int, value: dict[str, Any]) -> Reply:
    return Reply(status=status, content_type="application/json", data=json.dumps(value, ensure_ascii=False).encode())
