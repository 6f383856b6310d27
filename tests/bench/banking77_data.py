"""BANKING77: 13,083 questions that customers asked an online bank, 77 intents (Casanueva et al. 2020, CC BY 4.0).

Not part of the project. `train.csv` and `test.csv` are taken from the folder `banking77` below $KOLM_DATA (default
../shared/data); a reader gets them from github.com/PolyAI-LDN/task-specific-datasets, folder banking_data.
"""

import csv
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deploy.embedded.home import ROOT

# The intents about money that was taken, or is to come back: the ones that people and models take for each other.
REF8 = (
    "Refund_not_showing_up",
    "card_payment_fee_charged",
    "card_payment_not_recognised",
    "direct_debit_payment_not_recognised",
    "extra_charge_on_statement",
    "request_refund",
    "reverted_card_payment?",
    "transaction_charged_twice",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    text: str
    intent: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Banking77:
    """The published split, or the part of it that has the given intents."""

    train: tuple[Question, ...]
    test: tuple[Question, ...]

    @property
    def intents(self) -> tuple[str, ...]:
        return tuple(sorted({question.intent for question in self.train}))

    def only(self, intents: Iterable[str]) -> "Banking77":
        wanted = frozenset(intents)
        train, test = (tuple(q for q in side if q.intent in wanted) for side in (self.train, self.test))
        return Banking77(train=train, test=test)


def data_folder(variables: Mapping[str, str] = os.environ) -> Path:
    """Where the data sets are; relative to the repository, as people type it there."""
    return (ROOT / (variables.get("KOLM_DATA") or "../shared/data")).resolve()


def read_banking77(folder: Path) -> Banking77:
    """Raises FileNotFoundError where the two files are not below `folder`."""
    return Banking77(train=_read(folder / "banking77" / "train.csv"), test=_read(folder / "banking77" / "test.csv"))


def _read(path: Path) -> tuple[Question, ...]:
    with path.open(encoding="utf-8", newline="") as file:
        return tuple(Question(text=row["text"], intent=row["category"]) for row in csv.DictReader(file))


def captures(questions: Sequence[Question]) -> bytes:
    """The inputs alone, as an upload."""
    return _lines({"input": q.text} for q in questions)


def examples(questions: Sequence[Question]) -> bytes:
    """Inputs with their intents: gold."""
    return _lines({"input": q.text, "output": q.intent} for q in questions)


def recording(questions: Sequence[Question]) -> bytes:
    """A teacher that says what the people who labelled the data set said."""
    return _lines({"item": q.text, "completions": [{"text": q.intent}]} for q in questions)


def _lines(rows: Iterable[Mapping[str, Any]]) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
