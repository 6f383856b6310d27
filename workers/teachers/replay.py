"""A teacher that repeats recorded completions: for compiles from data that is already labelled, for tests, and to
run a compile again for free.

A recording is JSON lines, one item each:
    {"item": "text asked about"  or  "item_sha256": hex, "completions": [{"text": "refund_status", "logprob": -0.1,
    "label_logprobs": {"refund_status": -0.1, "other": -2.4}}], "usage": {...}}
The item is the raw text of a labelling request (`CompletionRequest.item`), or for a candidate request the joined
messages. Asked for more choices than are recorded it repeats them in order, and asked again about an item it goes on
from where it was: a recorded vote stays the same vote. `usage` is that of all the completions of the line together.
"""

import hashlib
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from backend.domain.errors import InvalidInput, Problem
from backend.domain.labeling.label_scores import read_scores, recorded_logprobs
from workers.teachers.protocol import (
    Choice,
    Completion,
    CompletionRequest,
    ScoreRequest,
    TeacherCanceled,
    TeacherCaps,
    TeacherFailed,
    TeacherIdentity,
    Usage,
)
from workers.teachers.token_estimates import estimate_tokens

MAX_LINES = 200_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    choices: tuple[Choice, ...]
    usage: Usage | None


class ReplayTeacher:
    def __init__(self, recording: bytes, *, model: str = "replay") -> None:
        self._rows = read_recording(recording)
        revision = hashlib.sha256(recording).hexdigest()
        self._identity = TeacherIdentity(provider="replay", model=model, revision=revision)

    @property
    def identity(self) -> TeacherIdentity:
        return self._identity

    @property
    def caps(self) -> TeacherCaps:
        return TeacherCaps(logprobs=True, prompt_logprobs=False)

    @property
    def thought_tokens(self) -> int:
        return 0

    def close(self) -> None:
        pass

    def complete(
        self, request: CompletionRequest, *, deadline_s: float, cancelled: Callable[[], bool] = lambda: False
    ) -> Completion:
        if cancelled():
            raise TeacherCanceled
        recorded = self._rows.get(item_sha256(request))
        if recorded is None:
            raise TeacherFailed(_no_answer(request), code="teacher_no_recording")
        n = len(recorded.choices)
        drawn = (recorded.choices[(request.n_before + i) % n] for i in range(request.n))
        choices = tuple(_with_scores(choice, request.labels) for choice in drawn)
        return Completion(choices=choices, usage=_usage(recorded, request, choices), revision=self._identity.revision)

    def score(
        self, request: ScoreRequest, *, deadline_s: float, cancelled: Callable[[], bool] = lambda: False
    ) -> Completion:
        raise TeacherFailed("A recording does not tell the log-probability of a given text.", code="teacher_rejected")


def _with_scores(choice: Choice, labels: Sequence[str]) -> Choice:
    """The choice with the log-probs of the labels that were asked about, if any were and it has them."""
    recorded = choice.label_logprobs if labels else None
    return replace(choice, label_logprobs=None if recorded is None else recorded_logprobs(recorded, labels))


def _usage(recorded: Recorded, request: CompletionRequest, choices: tuple[Choice, ...]) -> Usage:
    """The prompt once, and the output by the number of choices."""
    if recorded.usage is None:
        return Usage(
            input_tokens=sum(estimate_tokens(m.content) for m in request.messages),
            output_tokens=sum(c.n_tokens for c in choices),
            estimated=True,
        )
    output_tokens = -(-recorded.usage.output_tokens * len(choices) // len(recorded.choices))
    return Usage(input_tokens=recorded.usage.input_tokens, output_tokens=output_tokens)


def item_sha256(request: CompletionRequest) -> str:
    item = request.item if request.item is not None else "\n\n".join(m.content for m in request.messages)
    return hashlib.sha256(item.encode("utf-8", errors="surrogatepass")).hexdigest()


def _no_answer(request: CompletionRequest) -> str:
    if request.item is not None:
        return f"The recording has no row for the item {request.item[:80]!r}; add one and start a new compile with it."
    return "The recording has no candidates to give; name the inputs as captures, so that it is asked for labels alone."


def read_recording(data: bytes) -> dict[str, Recorded]:
    """{sha256 of the item: its completions}; InvalidInput with the number of the line that is wrong."""
    try:
        lines = data.decode("utf-8").split("\n")
    except UnicodeDecodeError as wrong:
        raise InvalidInput(
            "The recording is not valid UTF-8; encode it so and upload it again.", code="invalid_recording"
        ) from wrong
    if len(lines) > MAX_LINES:
        raise InvalidInput(f"The recording has more than {MAX_LINES} lines; leave some out.", code="invalid_recording")
    rows: dict[str, Recorded] = {}
    for number, line in enumerate(lines, start=1):
        if line.strip():
            key, recorded = _line(line, number)
            rows.setdefault(key, recorded)
    return rows


def _line(line: str, number: int) -> tuple[str, Recorded]:
    try:
        row = json.loads(line)
        completions = row["completions"]
        if "item" in row:
            key = hashlib.sha256(row["item"].encode("utf-8")).hexdigest()
        else:
            key = bytes.fromhex(row["item_sha256"]).hex()
        choices = tuple(_recorded_choice(entry) for entry in completions)
        usage = _recorded_usage(row.get("usage"))
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as wrong:
        raise _wrong(number) from wrong
    if len(key) != 64 or not choices:
        raise _wrong(number)
    return key, Recorded(choices=choices, usage=usage)


def _wrong(number: int) -> InvalidInput:
    expected = '{"item": "...", "completions": [{"text": "..."}]}'
    problem = Problem(pointer=f"/{number - 1}", message=f"line {number} is not {expected}", code="invalid_recording")
    message = f"Line {number} of the recording is not {expected}."
    return InvalidInput(message, code="invalid_recording", problems=(problem,))


def _recorded_choice(entry: Any) -> Choice:
    text, logprob = entry["text"], entry.get("logprob")
    if not isinstance(text, str):
        raise TypeError("text")
    text.encode("utf-8")
    if logprob is not None and not (isinstance(logprob, int | float) and math.isfinite(logprob) and logprob <= 0):
        raise ValueError("logprob")
    return Choice(
        text=text,
        logprob=None if logprob is None else float(logprob),
        label_logprobs=read_scores(entry.get("label_logprobs")),
        n_tokens=estimate_tokens(text),
    )


def _recorded_usage(value: Any) -> Usage | None:
    if value is None:
        return None
    counts = value["input_tokens"], value["output_tokens"]
    if not all(isinstance(c, int) and not isinstance(c, bool) and 0 <= c <= 10_000_000 for c in counts):
        raise ValueError("usage")
    return Usage(input_tokens=counts[0], output_tokens=counts[1])
