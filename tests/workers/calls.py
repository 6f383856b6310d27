"""A teacher in memory that keeps the protocol, and the calls that tests make to it."""

import threading
from collections.abc import Callable
from typing import Any

from backend.domain.money.pricing import TeacherPrice, price_book, teacher_price
from workers.step.teacher_calls import PlannedCall
from workers.teachers.protocol import (
    Choice,
    Completion,
    CompletionRequest,
    Message,
    ScoreRequest,
    TeacherCaps,
    TeacherFailed,
    TeacherIdentity,
    Usage,
)

MODEL = "kolm-grammar-1"
USAGE = Usage(input_tokens=100, output_tokens=10)
Answer = Callable[[CompletionRequest, Callable[[], bool]], Completion]


def answered(request: CompletionRequest, cancelled: Callable[[], bool] = lambda: False) -> Completion:
    """One choice that repeats the question."""
    return Completion(choices=(Choice(text=request.messages[-1].content, n_tokens=10),), usage=USAGE)


class EchoTeacher:
    """Answers with `answer`; `asked` counts how often each question came, `deadlines_s` has the time that each had."""

    identity = TeacherIdentity(provider="grammar", model=MODEL)
    caps = TeacherCaps()
    thought_tokens = 0

    def __init__(self, answer: Answer = answered) -> None:
        self.asked: dict[str, int] = {}
        self.deadlines_s: dict[str, float] = {}
        self._answer = answer
        self._lock = threading.Lock()

    def complete(
        self, request: CompletionRequest, *, deadline_s: float, cancelled: Callable[[], bool] = lambda: False
    ) -> Completion:
        question = request.messages[-1].content
        with self._lock:
            self.asked[question] = self.asked.get(question, 0) + 1
            self.deadlines_s[question] = deadline_s
        return self._answer(request, cancelled)

    def score(self, request: ScoreRequest, **_: Any) -> Completion:
        raise TeacherFailed("An echo knows no log-probabilities.", code="teacher_rejected")

    def close(self) -> None:
        pass


def price() -> TeacherPrice:
    return teacher_price(price_book(), MODEL, None)


def plan(key: str, *, max_tokens: int = 50) -> PlannedCall:
    request = CompletionRequest(messages=(Message(role="user", content=f"question {key}"),), max_tokens=max_tokens)
    return PlannedCall(key=key, request=request)
