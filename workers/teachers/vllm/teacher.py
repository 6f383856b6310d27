"""A teacher that the customer serves with vLLM: besides what OpenAI's protocol has, it scores a given answer, goes on
from a begun one, and takes drafts as proposals (`proposer`).

Answers are scored and begun as token ids, never as text: a tokenizer merges differently over the joint of prompt and
answer, and chat templates trim. So the prompt is what the server's own chat template makes of the messages, the answer
is tokenised by itself, and its end is the token that the template puts after an answer.

The server must be started with `--logprobs-mode processed_logprobs`: by default vLLM tells the log-probs of temperature
1 whatever it samples at. It has no such mode for the tokens of a prompt: there temperature and top-k are applied here,
which needs a top-k within what it tells (`--max-logprobs`, 20), or temperature 0 or 1.
"""

import functools
import time
from collections.abc import Callable, Sequence
from typing import Any

from backend.domain.dialects.dialect import Dialect
from backend.domain.drafts.vocabulary import EngineTokens
from backend.outbound import Watch
from workers.teachers.openai_compatible.answers import as_completion
from workers.teachers.openai_compatible.attempts import Reply, read_reply
from workers.teachers.openai_compatible.bodies import chat_body
from workers.teachers.openai_compatible.teacher import BODY_CAP, OpenAICompatibleTeacher, completion_of
from workers.teachers.protocol import Completion, CompletionRequest, Message, ScoreRequest, TeacherFailed
from workers.teachers.vllm import answers
from workers.teachers.vllm.engine_counters import read_counters

FREE = CompletionRequest(messages=(), n=0, max_tokens=0)  # what a call without a model costs at most
PROBE = (Message(role="user", content="a"),)
COUNTERS_S = 10.0


class VllmTeacher(OpenAICompatibleTeacher):
    """A teacher that vLLM serves. `base_url` ends in /v1; the tokenizer is beside it, at /tokenize."""

    def __init__(self, *, base_url: str, **fields: Any) -> None:
        root = base_url.rstrip("/").removesuffix("/v1")
        super().__init__(base_url=root, **fields)
        self._end: tuple[int, ...] | None = None

    def complete(
        self, request: CompletionRequest, *, deadline_s: float, cancelled: Callable[[], bool] = lambda: False
    ) -> Completion:
        if not request.prefix:
            return super().complete(request, deadline_s=deadline_s, cancelled=cancelled)
        watch = Watch(deadline_at=time.monotonic() + deadline_s, cancelled=cancelled)
        prompt = [*self._prompt_ids(request.messages, watch), *self._text_ids(request.prefix, watch)]

        def text_body(dialect: Dialect) -> dict[str, Any]:
            body = chat_body(request, self.identity.model, self.caps, dialect)
            for name in ("messages", "continue_final_message", "add_generation_prompt", "logprobs", "top_logprobs"):
                body.pop(name, None)
            if request.logprobs and self.caps.logprobs:
                body["logprobs"] = min(request.top_logprobs, self.caps.max_top_logprobs)
            return body | {"prompt": prompt}

        parse = functools.partial(answers.read_text_completion, request=request)
        return completion_of(self._call("/completions", text_body, request, watch, parse))

    def score(
        self, request: ScoreRequest, *, deadline_s: float, cancelled: Callable[[], bool] = lambda: False
    ) -> Completion:
        """One prefill; the end of the text is its last token where the chat template has one."""
        can_score = request.temperature in (0.0, 1.0) if request.top_k is None else request.top_k <= self._max_top
        if not can_score:
            raise TeacherFailed(
                f"vLLM tells the log-probs of a given text at temperature 0 or 1, or with a top-k up to"
                f" {self._max_top}.",
                code="teacher_rejected",
            )
        watch = Watch(deadline_at=time.monotonic() + deadline_s, cancelled=cancelled)
        prompt = self._prompt_ids(request.messages, watch)
        ids = [*prompt, *self._text_ids(request.text, watch), *self._end_ids(watch)]
        n_top = max(1, min(request.top_logprobs, self._max_top), request.top_k or 0)
        body = {
            "model": self.identity.model,
            "prompt": ids,
            "prompt_logprobs": n_top,
            "max_tokens": 1,
            "temperature": 0.0,
        }
        parse = functools.partial(answers.read_prompt_score, request=request, ids=ids, starts_at=len(prompt))
        return completion_of(self._call("/completions", lambda _: body, as_completion(request), watch, parse))

    def counters(self) -> EngineTokens | None:
        """Return the engine's own counts up to now; None where they cannot be had: a gateway hides them, or it takes no
        proposals."""
        watch = Watch(deadline_at=time.monotonic() + COUNTERS_S, cancelled=lambda: False)
        read = functools.partial(read_reply, cap=BODY_CAP)
        try:
            return read_counters(self.exchange("GET", "/metrics", read, watch=watch).body)
        except TeacherFailed:
            return None

    @property
    def _max_top(self) -> int:
        return self.caps.max_top_logprobs

    def _prompt_ids(self, messages: Sequence[Message], watch: Watch) -> tuple[int, ...]:
        """The messages in the server's chat template, up to where the answer begins."""
        return self._tokenize({"messages": _dicts(messages), "add_generation_prompt": True}, watch)

    def _text_ids(self, text: str, watch: Watch) -> tuple[int, ...]:
        return self._tokenize({"prompt": text, "add_special_tokens": False}, watch) if text else ()

    def _end_ids(self, watch: Watch) -> tuple[int, ...]:
        """The token that ends an answer, asked for once; () where the template's way to close one is not to be seen."""
        if self._end is None:
            answer = Message(role="assistant", content="b")
            closed = self._tokenize({"messages": _dicts([*PROBE, answer]), "add_generation_prompt": False}, watch)
            open_ = (*self._prompt_ids(PROBE, watch), *self._text_ids("b", watch))
            self._end = closed[len(open_) : len(open_) + 1] if closed[: len(open_)] == open_ else ()
        return self._end

    def _tokenize(self, body: dict[str, Any], watch: Watch) -> tuple[int, ...]:
        body = {"model": self.identity.model, **body}
        return self._call("/tokenize", lambda _: body, FREE, watch, answers.read_ids).value

    def _post(self, path: str, body: Any, request: CompletionRequest) -> Reply:
        return super()._post(path if path == "/tokenize" else f"/v1{path}", body, request)


def _dicts(messages: Sequence[Message]) -> list[dict[str, str]]:
    return [{"role": message.role, "content": message.content} for message in messages]
