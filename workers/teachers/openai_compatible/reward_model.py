"""The client of a reward model or reranker: one POST gives the number of one candidate, as `reward_apis` says.

A request holds the question and the candidate as two messages; the answer's one choice holds the number as text, or
nothing where the server gave none that is finite and of a plausible size. Deadline, retries, address rules and what the
key may reach are those of the teacher it is made of.
"""

import functools
import json
import time
from collections.abc import Callable, Mapping
from typing import Any

from backend.domain.dialects.reward_apis import RewardApi
from backend.outbound import Watch
from workers.teachers.openai_compatible.answers import Answer, read_usage
from workers.teachers.openai_compatible.logprobs import BadAnswer
from workers.teachers.openai_compatible.teacher import OpenAICompatibleTeacher
from workers.teachers.protocol import Choice, Completion, CompletionRequest

MOST = 1e9  # a reward beyond is no reward


class RewardModel(OpenAICompatibleTeacher):
    """A model that is asked for numbers. Its dialect teaches nothing: the request is the API's own."""

    def __init__(self, *, api: RewardApi, base_url: str, **fields: Any) -> None:
        super().__init__(base_url="", **fields)
        self._api = api
        self._url = api.url(base_url)

    def complete(
        self, request: CompletionRequest, *, deadline_s: float, cancelled: Callable[[], bool] = lambda: False
    ) -> Completion:
        question, candidate = (message.content for message in request.messages)
        body = self._api.body(self.identity.model, question, candidate)
        watch = Watch(deadline_at=time.monotonic() + deadline_s, cancelled=cancelled)
        parse = functools.partial(read_reward, api=self._api, request=request)
        return self.answer_to(request, lambda: self._call(self._url, lambda _: body, request, watch, parse))


def read_reward(body: bytes, api: RewardApi, request: CompletionRequest) -> Answer:
    """The number in the answer of a reward model, as the text of one choice, "" where it is none. Raises BadAnswer for
    what is not the API's shape."""
    try:
        data = json.loads(body.decode("utf-8", errors="strict"), parse_constant=lambda name: None)
        value = api.number(data)
    except (ValueError, RecursionError) as wrong:
        raise BadAnswer("the answer is not valid JSON") from wrong
    except (LookupError, TypeError) as wrong:
        raise BadAnswer(f"the answer holds no number where {api.name} has it") from wrong
    choice = Choice(text=_as_text(value), n_tokens=0)
    usage = data.get("usage") if isinstance(data, Mapping) else None
    return Answer(
        choices=(choice,),
        usage=read_usage(_with_output(usage), request, (choice,)),
        model="",
        system_fingerprint="",
    )


def _as_text(value: object) -> str:
    """A number of a plausible size as text, "" for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not -MOST <= value <= MOST:
        return ""
    return repr(float(value))


def _with_output(usage: object) -> object:
    """The usage with what such servers leave out: an output, which is none, and of a reranker the input where there is
    a total."""
    if not isinstance(usage, Mapping):
        return None
    known = {name: value for name, value in usage.items() if value is not None}
    tokens = known.get("prompt_tokens", known.get("total_tokens"))
    return None if tokens is None else {"completion_tokens": 0, **known, "prompt_tokens": tokens}
