"""The examples of the trainer's bench: SNIPS as JSON chats, HumanEval as prompt and solution, as
rows of a job's dataset."""

import gzip
import json
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.bench.snips_data import read_snips

SNIPS_SYSTEM = "Name the intent and copy the words of each slot. Answer with JSON alone."
HUMANEVAL_SYSTEM = "Complete the function."


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """`train`, `held`: {"input", "output", "weight"}."""

    system: str
    train: list[dict[str, Any]]
    held: list[dict[str, Any]]


def load_task(name: str, folder: Path, *, n_train: int, n_held: int) -> Task:
    """A sample that the name alone decides. Raises FileNotFoundError where `folder` lacks the data."""
    rows = _snips(folder) if name == "snips" else _humaneval(folder)
    random.Random(name).shuffle(rows)
    held = min(n_held, len(rows) // 5)
    system = SNIPS_SYSTEM if name == "snips" else HUMANEVAL_SYSTEM
    return Task(system=system, held=rows[:held], train=rows[held : held + n_train])


def _snips(folder: Path) -> list[dict[str, Any]]:
    return [
        {"input": u.text, "output": json.dumps(u.answer, ensure_ascii=False), "weight": 1.0}
        for u in read_snips(folder).train
    ]


def _humaneval(folder: Path) -> list[dict[str, Any]]:
    with gzip.open(folder / "humaneval" / "HumanEval.jsonl.gz", "rt") as file:
        problems = [json.loads(line) for line in file]
    return [{"input": p["prompt"], "output": p["canonical_solution"], "weight": 1.0} for p in problems]
