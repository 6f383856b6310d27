"""OpenAI's interface of `kolm serve` over one student on an encoder, apart from the server that carries it."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gpu_runners.artifacts.encoder_student import EncoderModel, StudentAnswer
from gpu_runners.serving.openai.bodies.chats import ChatCall, chat_call, read_json
from gpu_runners.serving.openai.bodies.responses import own_names, response_call
from gpu_runners.serving.openai.faults import Fault, fault_of
from gpu_runners.serving.openai.responder import Refusal
from gpu_runners.serving.openai.response_objects import ResponseObject
from gpu_runners.serving.openai.shapes import Answer, AnswerObject
from gpu_runners.serving.openai.student_answers import no_completions, student_delta, student_input


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

    def models(self, name: str | None = None) -> Reply:
        """List the one model, or describe it by its name."""
        row = {"id": self.name, "object": "model", "created": self.created, "owned_by": "kolm"}
        if name is None:
            return _json(200, {"object": "list", "data": [row]})
        return _json(200, row) if name == self.name else refusal_reply(fault_of(self._no_model()))

    def chat(self, body: bytes) -> Reply:
        """Answer the body of a chat, whole or as a stream of one chunk."""
        return self._reply(lambda: self._chat(body))

    def response(self, body: bytes) -> Reply:
        """Answer the body of a response, whole or as a stream of its events."""
        return self._reply(lambda: self._response(body))

    def completions(self) -> Reply:
        return refusal_reply(fault_of(no_completions()))

    def _chat(self, body: bytes) -> Reply:
        call = chat_call(read_json(body))
        answer, write = self._answer_of(call)
        return write(answer)

    def _response(self, body: bytes) -> Reply:
        call = response_call(read_json(body))
        with own_names():
            answer, write = self._answer_of(call.chat)
        return write(ResponseObject(call=call, answer=answer))

    def _answer_of(self, call: ChatCall) -> tuple[Answer, Callable[[AnswerObject], Reply]]:
        """The answer still without its text, and what writes that into an object of its own shape."""
        if call.model != self.name:
            raise self._no_model()
        asked = student_input(call, self.student)
        answered = self.answer(asked.text)
        delta = student_delta(answered, asked)
        answer = Answer(
            model=self.name,
            is_chat=True,
            n_choices=1,
            has_logprobs=asked.top_logprobs is not None,
            reads_tools=False,
            form=asked.form,
            with_usage=call.sampling.include_usage,
            kolm=asked.about(answered),
        )

        def write(into: AnswerObject) -> Reply:
            if call.sampling.stream:
                data = into.events(0, delta) + into.last_events()
                return Reply(status=200, content_type="text/event-stream", data=data)
            into.add(0, delta)
            return _json(200, into.whole())

        return answer, write

    def _reply(self, work: Callable[[], Reply]) -> Reply:
        try:
            return work()
        except Exception as error:  # noqa: BLE001 - the edge: what nobody foresaw is a 500; its words are not told
            return refusal_reply(fault_of(error))

    def _no_model(self) -> Refusal:
        return Refusal(404, "model_not_found", f"Here is one model, {self.name!r}.")


def refusal_reply(fault: Fault) -> Reply:
    return _json(fault.status, fault.body)


def _json(status: int, value: dict[str, Any]) -> Reply:
    return Reply(status=status, content_type="application/json", data=json.dumps(value, ensure_ascii=False).encode())
