"""Predict held-out inputs with an adapter and with its baseline. The labels stay with the backend: this side never sees
a right answer."""

import time
from collections.abc import Callable, Sequence

import torch

from backend.domain.runner_jobs import EvaluateJob, EvaluateResult
from gpu_runners.distill.adapter import AdapterConfig, baseline_net, from_bytes
from gpu_runners.distill.bases import Base
from gpu_runners.distill.dataset import read_inputs
from gpu_runners.distill.encoder import LabelNet, embed_all, load_body
from gpu_runners.distill.repeatable import deterministic
from gpu_runners.serving.label_model import LabelModel

N_LATENCIES = 50
N_WARM_UP = 5
CHUNK = 256


def evaluate(
    job: EvaluateJob,
    inputs: bytes,
    adapter_blob: bytes,
    *,
    base: Base,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> EvaluateResult:
    """One prediction an input, in order. Raises JobFailed (invalid_dataset, invalid_adapter, base_mismatch)."""
    started = time.monotonic()
    texts = read_inputs(inputs)
    adapter, config = from_bytes(adapter_blob), AdapterConfig.from_json(job.adapter_config)
    body = load_body(base)
    with deterministic(0):
        model = LabelModel.build(
            base=base, body=body, adapter=adapter, config=config, labels=job.labels, temperature=job.temperature
        )
        baseline = baseline_net(body, adapter, n_labels=len(job.labels))
        predictions, confidences, baseline_predictions = [], [], []
        for start in range(0, len(texts), CHUNK):
            rows = model.tokenizer.ids(texts[start : start + CHUNK])
            confidence, index = torch.softmax(_logits(model.net, model, rows) / job.temperature, dim=1).max(dim=1)
            predictions += [job.labels[i] for i in index.tolist()]
            confidences += [round(c, 6) for c in confidence.tolist()]
            baseline_predictions += [job.labels[i] for i in _logits(baseline, model, rows).argmax(dim=1).tolist()]
            on_progress(min(start + CHUNK, len(texts)), len(texts))
        latency_us = _latencies(model, texts)
    return EvaluateResult(
        predictions=predictions,
        confidences=confidences,
        baseline_predictions=baseline_predictions,
        latency_us=latency_us,
        device=str(next(model.net.parameters()).device),
        runner_ms=round((time.monotonic() - started) * 1000),
    )


def _logits(net: LabelNet, model: LabelModel, rows: Sequence[Sequence[int]]) -> torch.Tensor:
    with torch.inference_mode():
        return net.logits(embed_all(net, model.tokenizer, rows).to(net.head.weight.device)).cpu()


def _latencies(model: LabelModel, texts: Sequence[str]) -> list[int]:
    """Single-input wall times in microseconds, tokenising included, of up to 50 inputs spread evenly over the set."""
    n = min(N_LATENCIES, len(texts))
    sample = [texts[i * len(texts) // n] for i in range(n)]
    for text in sample[:N_WARM_UP]:
        model.predict([text])
    return [model.predict([text])[0]["latency_us"] for text in sample]
