"""Held-out inputs answered beside a label model: by logistic regression on the frozen base, of its pairs and of gold
alone."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from backend.domain.jobs.runner_jobs import EvaluateJob, EvaluateResult
from gpu_runners.agent.jobs import evaluate_files
from gpu_runners.errors import JobFailed
from gpu_runners.models.bases import open_base
from gpu_runners.models.encoder_runtimes import head_logits, load_runtime
from gpu_runners.models.encoder_tokens import TextTokenizer
from gpu_runners.models.label_adapter import AdapterConfig, from_bytes
from tests.gpu_runners.small_task import LABELS, Trained, jsonl, task_rows

GOLD = task_rows(3, start=40)
TEXTS = [row["input"] for row in task_rows(6, start=10)]


def evaluated(
    trained: Trained, folder: Path, gold: list[dict[str, Any]] | None, random: list[dict[str, Any]] | None = None
) -> EvaluateResult:
    (folder / "inputs").write_bytes(jsonl([{"input": text} for text in TEXTS]))
    (folder / "adapter").write_bytes(trained.blob)
    if gold is not None:
        (folder / "gold").write_bytes(jsonl(gold))
    if random is not None:
        (folder / "random").write_bytes(jsonl(random))
    job = EvaluateJob(
        base_model=trained.job.base_model,
        base_model_sha256=trained.result.base_model_sha256,
        labels=list(LABELS),
        adapter_sha256=trained.result.adapter_sha256,
        adapter_config=trained.result.adapter_config,
        temperature=trained.result.temperature,
        inputs_sha256="a" * 64,
        gold_sha256="" if gold is None else "c" * 64,
        random_sha256="" if random is None else "d" * 64,
    )
    done = evaluate_files(job, folder=folder, base_dir=None, emit=lambda event: None)
    return EvaluateResult.from_json(done["result"])


def test_gold_alone_answers_as_scikit_learn_does_on_the_frozen_embeddings(trained: Trained, tmp_path: Path) -> None:
    result = evaluated(trained, tmp_path, GOLD, GOLD[:6])
    base = open_base(trained.job.base_model, base_dir=None)
    config = AdapterConfig.from_json(trained.result.adapter_config)
    runtime, tokenizer = load_runtime(base), TextTokenizer(base, max_tokens=config.max_tokens)
    seen, held = (
        runtime.embed(tokenizer.ids(texts), pooling=config.pooling) for texts in ([row["input"] for row in GOLD], TEXTS)
    )
    reference = LogisticRegression(C=10.0, max_iter=1000).fit(seen.astype(np.float64), [row["label"] for row in GOLD])
    assert result.gold_predictions == reference.predict(held.astype(np.float64)).tolist()
    frozen = head_logits(held, from_bytes(trained.blob).baseline)
    assert result.baseline_predictions == [LABELS[i] for i in frozen.argmax(axis=1)]
    few = LogisticRegression(C=10.0, max_iter=1000).fit(seen[:6].astype(np.float64), [row["label"] for row in GOLD[:6]])
    assert result.random_predictions == few.predict(held.astype(np.float64)).tolist()
    assert len(result.head_own_ns) == 10
    assert (result.own_clock, min(*result.head_own_ns, result.head_reference_ns) > 0) == ("cpu", True)
    read = [*TEXTS, *(row["input"] for row in GOLD), *(row["input"] for row in GOLD[:6])]
    assert result.n_tokens == sum(map(len, tokenizer.ids(read)))


def test_without_gold_there_is_no_such_answer(trained: Trained, tmp_path: Path) -> None:
    result = evaluated(trained, tmp_path, None)
    assert (result.gold_predictions, result.random_predictions) == ([], [])


@pytest.mark.nightly
def test_labels_that_gold_lacks_are_never_answered_and_one_label_is_nothing_to_fit(
    trained: Trained, tmp_path: Path
) -> None:
    two = [row for row in GOLD if row["label"] in LABELS[:2]]
    assert set(evaluated(trained, tmp_path, two).gold_predictions) <= set(LABELS[:2])
    one = [row for row in GOLD if row["label"] == LABELS[0]]
    assert evaluated(trained, tmp_path, one).gold_predictions == []


def test_gold_of_an_unknown_label_is_refused(trained: Trained, tmp_path: Path) -> None:
    with pytest.raises(JobFailed, match="one of the job's labels"):
        evaluated(trained, tmp_path, [*GOLD, {"input": "x", "label": "unheard of", "weight": 1.0}])
