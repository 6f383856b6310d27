"""Predict held-out inputs with an adapter, by the engine that will serve it, and with what it is compared with: heads
on the frozen base. The labels stay with the backend: this side never sees a right answer."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from backend.domain.jobs.runner_jobs import EvaluateJob, EvaluateResult
from gpu_runners.artifacts.label_model import BATCH, LabelModel
from gpu_runners.artifacts.rules_first import RulesFirst, predict_with_rules
from gpu_runners.distill.label.baseline import fit_head
from gpu_runners.distill.label.dataset import labels_in, read_inputs, read_pairs
from gpu_runners.jobs.own_time import OwnTimes, one_thread, own_times, with_rules
from gpu_runners.models.bases import Base
from gpu_runners.models.encoder_runtimes import head_logits, load_runtime
from gpu_runners.models.encoder_tokens import TextTokenizer
from gpu_runners.models.label_adapter import AdapterConfig, Head, from_bytes
from gpu_runners.models.tensor_files import Array

N_LATENCIES = 50
N_WARM_UP = 5
N_HEAD_TIMES = 10  # of a head on the frozen base, which no score is made of
CHUNK = 256


def evaluate(
    job: EvaluateJob,
    inputs: bytes,
    adapter_blob: bytes,
    *,
    base: Base,
    rules: bytes | None = None,
    gold: bytes | None = None,
    random: bytes | None = None,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> EvaluateResult:
    """One prediction an input, in order: by the model, by logistic regression on the frozen base (of the same pairs,
    of `gold` alone and of `random` labels) and, of a rules.json, by the rules. Raises JobFailed (invalid_dataset,
    invalid_adapter, base_mismatch)."""
    started = time.monotonic()
    texts = read_inputs(inputs)
    first = None if rules is None else RulesFirst.from_members({"rules.json": rules}, labels=job.labels)
    adapter, config = from_bytes(adapter_blob), AdapterConfig.from_json(job.adapter_config)
    runtime = load_runtime(base)
    model = LabelModel.build(
        base=base, runtime=runtime, adapter=adapter, config=config, labels=job.labels, temperature=job.temperature
    )
    frozen = _Frozen(forward=partial(runtime.embed, pooling=config.pooling), tokenizer=model.tokenizer)
    of_pairs = _FittedHead(head=adapter.baseline, labels=job.labels)
    heads = [of_pairs, *(None if pairs is None else frozen.fit(pairs, job.labels) for pairs in (gold, random))]
    n_tokens = sum(head.n_tokens for head in heads if head is not None)
    predictions, confidences = [], []
    by_head: list[list[str]] = [[] for _ in heads]
    for start in range(0, len(texts), CHUNK):
        rows = model.tokenizer.ids(texts[start : start + CHUNK])
        n_tokens += sum(map(len, rows))
        probabilities = in_batches(model.probabilities, rows)
        predictions += [job.labels[i] for i in probabilities.argmax(axis=1)]
        confidences += [round(float(p), 6) for p in probabilities.max(axis=1)]
        embedded = frozen.embed(rows)
        for answers, head in zip(by_head, heads, strict=True):
            answers += [] if head is None else head.answers(embedded)
        on_progress(min(start + CHUNK, len(texts)), len(texts))
    own, ruled_own_ns = _own_times(model, texts, first)
    of_head = frozen.own_times(of_pairs, sample_of(texts, N_HEAD_TIMES), device=model.engine.device)
    return EvaluateResult(
        predictions=predictions,
        confidences=confidences,
        baseline_predictions=by_head[0],
        gold_predictions=by_head[1],
        random_predictions=by_head[2],
        rule_answers=[] if first is None else [a.text if a else None for a in first.answers(texts)],
        latency_us=_latencies(model, texts),
        ruled_latency_us=[] if first is None else _latencies(model, texts, rules=first),
        own_ns=own.answers_ns,
        ruled_own_ns=ruled_own_ns,
        own_reference_ns=own.reference_ns,
        own_clock=own.clock,
        head_own_ns=of_head.answers_ns,
        head_reference_ns=of_head.reference_ns,
        device=model.engine.device,
        runner_ms=round((time.monotonic() - started) * 1000),
        n_tokens=n_tokens,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _FittedHead:
    """A head with the labels of its rows, and the tokens that were read for it."""

    head: Head
    labels: Sequence[str]
    n_tokens: int = 0

    def answers(self, embedded: Array) -> list[str]:
        return [self.labels[i] for i in head_logits(embedded, self.head).argmax(axis=1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Frozen:
    """The frozen base, whose embeddings heads are fitted on."""

    forward: Callable[[Sequence[Sequence[int]]], Array]
    tokenizer: TextTokenizer

    def embed(self, rows: Sequence[Sequence[int]]) -> Array:
        """(n, d) float32 unit rows."""
        return in_batches(self.forward, rows)

    def own_times(self, head: _FittedHead, texts: Sequence[str], *, device: str) -> OwnTimes:
        """The own times of this head's answers, tokenising included."""

        def answer(text: str) -> list[str]:
            return head.answers(self.forward(self.tokenizer.ids([text])))

        with one_thread():
            for text in texts[:1]:
                answer(text)
            return own_times([partial(answer, text) for text in texts], device=device)

    def fit(self, pairs: bytes, labels: Sequence[str]) -> _FittedHead | None:
        """Fit a head on these pairs, for the labels that they have; None for fewer than two."""
        there = labels_in(pairs)
        known = [label for label in labels if label in there]
        if len(known) < 2:
            return None
        known_pairs = read_pairs(pairs, known)
        rows = self.tokenizer.ids([pair.text for pair in known_pairs])
        head = fit_head(self.embed(rows), known_pairs, n_labels=len(known))
        return _FittedHead(head=head, labels=known, n_tokens=sum(map(len, rows)))


def in_batches(forward: Callable[[Sequence[Sequence[int]]], Array], rows: Sequence[Sequence[int]]) -> Array:
    """`forward` of all rows, in their order, computed 32 at a time from the rows sorted by length: little padding."""
    order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
    parts = [forward([rows[i] for i in order[k : k + BATCH]]) for k in range(0, len(order), BATCH)]
    return np.concatenate(parts)[np.argsort(order)]


def _latencies(model: LabelModel, texts: Sequence[str], *, rules: RulesFirst | None = None) -> list[int]:
    """Single-input wall times in microseconds, tokenising included, of up to 50 inputs spread evenly over the set."""
    sample = sample_of(texts)
    for text in sample[:N_WARM_UP]:
        model.predict([text])
    return [predict_with_rules(rules, [text], is_label=True, model=model.predict)[0]["latency_us"] for text in sample]


def _own_times(model: LabelModel, texts: Sequence[str], rules: RulesFirst | None) -> tuple[OwnTimes, list[int]]:
    """The own times of the model on the same sample, and those of rules and then model."""
    sample = sample_of(texts)
    with one_thread():
        model.predict(sample[:1])
        own = own_times([partial(model.predict, [text]) for text in sample], device=model.engine.device)
    return own, [] if rules is None else with_rules(rules, sample, own.answers_ns)


def sample_of(texts: Sequence[str], most: int = N_LATENCIES) -> list[str]:
    """Some of the texts, spread evenly."""
    n = min(most, len(texts))
    return [texts[i * len(texts) // n] for i in range(n)]
