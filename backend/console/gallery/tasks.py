"""The tasks of the gallery: their words here, their figures from `measured.json`, which `python -m tests.bench.gallery
--write` writes. A task without figures is not shown: what did not pass its gate, or was not measured, is not offered.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

MEASURED = Path(__file__).parent / "measured.json"
SENTENCES = {
    "refund-router": (
        "Refund router",
        "Sorts a shop's messages into refund requests, status, rules, complaints and the rest.",
    ),
    "sentiment": ("Sentiment", "Says whether a customer is pleased, displeased or neither."),
    "pii-flag": ("Privacy flag", "Says whether a message holds something that identifies a private person."),
    "urgency": ("Urgency", "Says how soon a help desk has to act on a ticket."),
    "spam": ("Spam", "Tells unwanted messages from wanted ones."),
    "language": ("Language", "Says which of five languages a short text is written in."),
    "repair-desk": ("Repair desk", "Reads what a tenant reports and says which trade has to come."),
    "order-extractor": ("Order extraction", "Reads action, order numbers, products and dates out of a mail, as JSON."),
    "ticket-summary": (
        "Ticket summary",
        "Says what a customer's mail asks for in one sentence of a fixed form.",
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One card. Of several compiles: the least accuracy and K-score, the most seconds and dollars."""

    name: str
    title: str
    sentence: str
    kind: str
    accuracy_ppm: int
    k_score_ppm: int
    seconds: int
    spent_microusd: int
    n_compiles: int

    @property
    def accuracy(self) -> float:
        return self.accuracy_ppm / 1_000_000

    @property
    def minutes(self) -> int:
        """Rounded up: nobody minds that it took less."""
        return -(-self.seconds // 60)


@cache
def read_measured() -> Mapping[str, Any]:
    """{"day": when, "tasks": {name: figures}}."""
    document: dict[str, Any] = json.loads(MEASURED.read_text(encoding="utf-8"))
    return document


@cache
def tasks() -> tuple[Task, ...]:
    """The measured tasks in the order of the page."""
    figures: Mapping[str, Mapping[str, Any]] = read_measured()["tasks"]
    return tuple(_task(name, figures[name]) for name in SENTENCES if name in figures)


def _task(name: str, figures: Mapping[str, Any]) -> Task:
    title, sentence = SENTENCES[name]
    counts = {key: value for key, value in figures.items() if key != "runs"}
    return Task(name=name, title=title, sentence=sentence, **counts)
