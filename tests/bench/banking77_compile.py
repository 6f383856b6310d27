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

from backend.domain.gold import leakage, split_gold
from backend.domain.spec import Example
from tests.acceptance.deployment import Customer
from tests.bench import banking77_data as data
from tests.bench import label_baselines
from tests.bench.banking77_data import Banking77

INPUTS_PER_RUN = 64
ADAPTER, TF_IDF, FROZEN = "adapter", "TF-IDF + logistic regression", "frozen embeddings + logistic regression"


@dataclass(frozen=True, slots=True, kw_only=True)
class Uploads:
    captures: str
    examples: str
    recording: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """`answers` and `truths` row by row over the held-out questions; `own` is the compile's own evaluation."""

    compile: Mapping[str, Any]
    own: Mapping[str, Any]
    steps: Mapping[str, Mapping[str, Any]]
    questions: tuple[str, ...]
    truths: tuple[str, ...]
    answers: Mapping[str, Sequence[str]]
    n_pairs: int
    n_leaks_dropped: int
    wall_s: float

    def rights(self, name: str) -> list[bool]:
        return [answer == truth for answer, truth in zip(self.answers[name], self.truths, strict=True)]

    def correct(self, name: str) -> int:
        return sum(self.rights(name))


def upload(customer: Customer, part: Banking77) -> Uploads:
    def one(purpose: str, body: bytes) -> str:
        digest = hashlib.sha256(body).hexdigest()
        answer = customer.api.post(
            f"/v1/uploads?purpose={purpose}&sha256={digest}",
            content=body,
            headers={"Content-Type": "application/x-ndjson"},
        )
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])

    return Uploads(
        captures=one("captures", data.captures(part.train)),
        examples=one("examples", data.examples(part.test)),
        recording=one("recording", data.recording(part.train)),
    )


def spec_of(
    name: str, part: Banking77, uploads: Uploads, *, sampling: Mapping[str, Any], train: Mapping[str, Any]
) -> dict[str, Any]:
    """The gate lets everything through that is not broken: here is measured, not decided."""
    free = {"input_usd_per_mtok": 0, "output_usd_per_mtok": 0}
    return {
        "name": name,
        "task": "Name the intent of a question that a customer asks a bank with an app and cards.",
        "output": {"type": "label", "labels": [{"name": intent} for intent in part.intents]},
        "captures": {"upload": uploads.captures, "max": 20_000},
        "examples": {"upload": uploads.examples, "holdout": 1.0},
        "teacher": {
            "provider": "replay",
            "model": "banking77-labels",
            "recording": uploads.recording,
            "price": free,
            "concurrency": 32,
        },
        "sampling": {"label_samples": 1, **sampling},
        "train": dict(train),
        "gate": {"k_min": 0.0, "accuracy_lower": 0.5, "worst_class_recall": 0.0},
    }


def heldout(part: Banking77) -> list[Example]:
    """What the compile holds out: the test split, each text once."""
    gold = [Example(input=q.text, output=q.intent) for q in part.test]
    return list(split_gold(gold, salt=b"any", holdout=1.0).heldout)


def compile_and_measure(customer: Customer, part: Banking77, spec: Mapping[str, Any], *, within_s: float) -> Measured:
    started = time.monotonic()
    compile = customer.succeeded(customer.compile(spec), within_s=within_s)
    wall_s = time.monotonic() - started
    trained = candidates(customer, compile["id"], "trained")
    texts, labels = [row["text"] for row in trained], [row["label"] for row in trained]
    held = heldout(part)
    questions = [example.input for example in held]
    assert leakage(texts, questions).n_heldout_touched == 0
    answers = {
        ADAPTER: run_artifact(customer, compile["artifact"], questions),
        "majority": label_baselines.majority(labels, len(held)),
        TF_IDF: label_baselines.tf_idf_answers(texts, labels, questions),
        FROZEN: label_baselines.frozen_answers(texts, labels, questions),
    }
    steps = {step["name"]: step for step in customer.get(f"/v1/compiles/{compile['id']}/steps")["data"]}
    return Measured(
        compile=compile,
        own=compile["evaluation"],
        steps=steps,
        questions=tuple(questions),
        truths=tuple(example.output for example in held),
        answers=answers,
        n_pairs=len(trained),
        n_leaks_dropped=_n_leaks(customer, compile["id"], questions),
        wall_s=wall_s,
    )


def candidates(customer: Customer, compile_id: str, state: str) -> list[dict[str, Any]]:
    """All candidates of one state."""
    found: list[dict[str, Any]] = []
    query: dict[str, Any] = {"state": state, "limit": 100}
    while True:
        page = customer.get(f"/v1/compiles/{compile_id}/candidates", **query)
        found += page["data"]
        if not page["has_more"]:
            return found
        query["after"] = page["next_cursor"]


def run_artifact(customer: Customer, artifact: str, inputs: Sequence[str]) -> list[str]:
    """What the published artifact answers."""
    labels: list[str] = []
    for first in range(0, len(inputs), INPUTS_PER_RUN):
        body = {"inputs": list(inputs[first : first + INPUTS_PER_RUN])}
        answer = customer.api.post(f"/v1/artifacts/{artifact}/run", json=body)
        assert answer.status_code == 200, answer.text
        labels += [row["label"] for row in answer.json()["outputs"]]
    return labels


def _n_leaks(customer: Customer, compile_id: str, questions: Sequence[str]) -> int:
    """Labelled inputs that were kept out of training because they nearly repeat a held-out question."""
    left_out = [row["text"] for row in candidates(customer, compile_id, "left_out")]
    report = leakage(left_out, questions)
    return len(report.exact) + len(report.near)
