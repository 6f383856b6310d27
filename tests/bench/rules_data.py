"""The tasks that the rules' benches use: pairs to induce from, and the published test sets.

BANKING77 and SNIPS as `banking77_data` and `snips_data` read them; CLINC150 (Larson et al. 2019, CC BY 3.0) from
`clinc150/data_full.json`, which a reader gets from github.com/clinc/oos-eval. CLINC150's test set is given twice: its
150 intents alone, and with the 1,000 questions that none of them covers (label `oos`, of which training has 100).
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backend.domain.answers.json_values import answer_text
from tests.bench.banking77_data import read_banking77
from tests.bench.snips_data import Utterance, read_snips

Pairs = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    name: str
    train: Pairs
    tests: Mapping[str, Pairs]
    answer: Mapping[str, Any]

    @property
    def texts(self) -> list[str]:
        """The first test set's inputs."""
        return [text for text, _ in next(iter(self.tests.values()))]


def banking77(folder: Path) -> Task:
    data = read_banking77(folder)
    train, test = (tuple((q.text, q.intent) for q in side) for side in (data.train, data.test))
    return Task(name="BANKING77", train=train, tests={"test": test}, answer=_labels(train))


def clinc150(folder: Path) -> Task:
    data = json.loads((folder / "clinc150" / "data_full.json").read_text("utf-8"))
    parts = {name: tuple((text, label) for text, label in rows) for name, rows in data.items()}
    train = parts["train"] + parts["oos_train"]
    tests = {"in scope": parts["test"], "with out-of-scope": parts["test"] + parts["oos_test"]}
    return Task(name="CLINC150", train=train, tests=tests, answer=_labels(train))


def snips_intents(folder: Path) -> Task:
    data = read_snips(folder)

    def pairs(side: Sequence[Utterance]) -> Pairs:
        return tuple((u.text, str(u.answer["intent"])) for u in side)

    train = pairs(data.train)
    return Task(name="SNIPS intents", train=train, tests={"validate": pairs(data.validate)}, answer=_labels(train))


def snips_json(folder: Path) -> Task:
    data = read_snips(folder)
    schema = data.schema

    def pairs(side: Sequence[Utterance]) -> Pairs:
        return tuple((u.text, answer_text(u.answer, schema)) for u in side)

    answer = {"type": "json", "schema": schema}
    return Task(name="SNIPS as JSON", train=pairs(data.train), tests={"validate": pairs(data.validate)}, answer=answer)


TASKS: dict[str, Callable[[Path], Task]] = {
    "BANKING77": banking77,
    "CLINC150": clinc150,
    "SNIPS intents": snips_intents,
    "SNIPS as JSON": snips_json,
}


def tasks(folder: Path, only: str = "") -> list[Task]:
    """Those whose name has `only` in it. Raises FileNotFoundError where one is not below `folder`."""
    return [read(folder) for name, read in TASKS.items() if only in name]


def _labels(pairs: Pairs) -> dict[str, Any]:
    return {"type": "label", "labels": sorted({label for _, label in pairs})}
