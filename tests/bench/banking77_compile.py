"""One compile of BANKING77 through the public API, and what simpler models make of the very same pairs.

Captures are the training split's inputs, the teacher replays its labels, the whole test split is held out. Everything
measured comes back over HTTP: the pairs that were trained on, the compile's own evaluation, and the published
artifact's answers to the test split, which are counted here a second time.
"""

import hashlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from backend.domain.spec.gold import leakage, split_gold
from backend.domain.spec.parsing import Example
from tests.acceptance.deployment import Customer
from tests.bench import banking77_data as data
from tests.bench import label_baselines
from tests.bench.banking77_data import Banking77
from tests.bench.label_baselines import Embeddings

INPUTS_PER_RUN = 64
ADAPTER = "adapter"
MAJORITY = "majority class"
TF_IDF = "TF-IDF + logistic regression"
FROZEN = "frozen embeddings + logistic regression"
FROZEN_C10 = "the same with C = 10"  # what the compile itself compares with
BASELINES = (MAJORITY, TF_IDF, FROZEN, FROZEN_C10)


@dataclass(frozen=True, slots=True, kw_only=True)
class Uploads:
    captures: str
    examples: str
    recording: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs:
    texts: tuple[str, ...]
    labels: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """`answers` row by row to the held-out `questions`, whose right answers are `truths`; `own` is the compile's own
    evaluation. `n_leaks_dropped` counts the labelled inputs that nearly repeat a held-out question."""

    compile_id: str
    own: Mapping[str, Any]
    n_captures: int
    labelled: Pairs
    trained: Pairs
    n_leaks_dropped: int
    questions: tuple[str, ...]
    truths: tuple[str, ...]
    answers: Mapping[str, Sequence[str]]
    wall_s: float

    def rights(self, name: str) -> list[bool]:
        return rights(self.answers[name], self.truths)

    def correct(self, name: str) -> int:
        return sum(self.rights(name))

    @property
    def best_baseline(self) -> str:
        return max(BASELINES, key=self.correct)


def rights(answers: Sequence[str], truths: Sequence[str]) -> list[bool]:
    return [answer == truth for answer, truth in zip(answers, truths, strict=True)]


def upload(customer: Customer, part: Banking77) -> Uploads:
    def one(purpose: str, body: bytes) -> str:
        query = {"purpose": purpose, "sha256": hashlib.sha256(body).hexdigest()}
        headers = {"Content-Type": "application/x-ndjson"}
        answer = customer.api.post("/v1/uploads", params=query, content=body, headers=headers)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])

    return Uploads(
        captures=one("captures", data.captures(part.train)),
        examples=one("examples", data.examples(part.test)),
        recording=one("recording", data.recording(part.train)),
    )


def spec_of(
    name: str,
    part: Banking77,
    uploads: Uploads,
    *,
    seed: int,
    max_captures: int,
    k_distill: int | str | None = None,
    **train: Any,
) -> dict[str, Any]:
    """The defaults wherever possible: K = ceil(N/3) of the captures, of which `k_distill` train (null: all). One vote a
    label (the recording would only repeat itself), and a gate that lets through what is not broken: here is measured,
    not decided."""
    return {
        "name": name,
        "task": "Name the intent of a question that a customer asks a bank with an app and cards.",
        "output": {"type": "label", "labels": [{"name": intent} for intent in part.intents]},
        "captures": {"upload": uploads.captures, "max": max_captures},
        "examples": {"upload": uploads.examples, "holdout": 1.0},
        "teacher": {
            "provider": "replay",
            "model": "banking77-labels",
            "recording": uploads.recording,
            "price": {"input_usd_per_mtok": 0, "output_usd_per_mtok": 0},
            "concurrency": 32,
        },
        "sampling": {"label_samples": 1, "seed": seed, "k_distill": k_distill},
        "train": {"seed": seed, **train},
        "gate": {"k_min": 0.0, "accuracy_lower": 0.5, "worst_class_recall": 0.0},
    }


def heldout(part: Banking77) -> list[Example]:
    """What the compile holds out: the test split, a text that stands there twice once."""
    gold = [Example(input=question.text, output=question.intent) for question in part.test]
    return list(split_gold(gold, salt=b"any", holdout=1.0).heldout)


def compile_and_measure(
    customer: Customer, part: Banking77, spec: Mapping[str, Any], *, embeddings: Embeddings, within_s: float
) -> Measured:
    started = time.monotonic()
    compile = customer.succeeded(customer.compile(spec), within_s=within_s)
    wall_s = time.monotonic() - started
    held = heldout(part)
    questions, truths = [example.input for example in held], [example.output for example in held]
    rows = {state: _candidates(customer, compile["id"], state) for state in ("trained", "left_out", "dropped")}
    trained, labelled = _pairs(rows["trained"]), _pairs(rows["trained"] + rows["left_out"])
    left_out = leakage([row["text"] for row in rows["left_out"]], questions)
    return Measured(
        compile_id=compile["id"],
        own=compile["evaluation"],
        n_captures=sum(map(len, rows.values())),
        labelled=labelled,
        trained=trained,
        n_leaks_dropped=len(left_out.exact) + len(left_out.near),
        questions=tuple(questions),
        truths=tuple(truths),
        answers={ADAPTER: run_artifact(customer, compile["artifact"], questions)}
        | _baseline_answers(embeddings, trained, questions),
        wall_s=wall_s,
    )


def _baseline_answers(embeddings: Embeddings, pairs: Pairs, questions: Sequence[str]) -> dict[str, list[str]]:
    texts, labels = pairs.texts, pairs.labels
    return {
        MAJORITY: label_baselines.majority_answers(labels, len(questions)),
        TF_IDF: label_baselines.tf_idf_answers(texts, labels, questions),
        FROZEN: label_baselines.frozen_answers(embeddings, texts, labels, questions),
        FROZEN_C10: label_baselines.frozen_answers(embeddings, texts, labels, questions, cs=(10.0,)),
    }


def run_artifact(customer: Customer, artifact: str, inputs: Sequence[str]) -> list[str]:
    """What the published artifact answers."""
    labels: list[str] = []
    for first in range(0, len(inputs), INPUTS_PER_RUN):
        body = {"inputs": list(inputs[first : first + INPUTS_PER_RUN])}
        for _ in range(3):  # a runner on a full machine may be late; the API says that asking again is right
            answer = customer.api.post(f"/v1/artifacts/{artifact}/run", json=body)
            if answer.status_code != 503:
                break
        assert answer.status_code == 200, answer.text
        labels += [row["label"] for row in answer.json()["outputs"]]
    return labels


def _candidates(customer: Customer, compile_id: str, state: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    query: dict[str, Any] = {"state": state, "limit": 100}
    while True:
        page = customer.get(f"/v1/compiles/{compile_id}/candidates", **query)
        found += page["data"]
        if not page["has_more"]:
            return found
        query["after"] = page["next_cursor"]


def _pairs(rows: Sequence[Mapping[str, Any]]) -> Pairs:
    return Pairs(texts=tuple(row["text"] for row in rows), labels=tuple(row["label"] for row in rows))
