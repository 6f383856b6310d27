"""Answer held-out inputs with a span student, by the engine that will serve it, and with the same heads on the frozen
base. The gold stays with the backend: this side never sees a right answer."""

import time
from collections.abc import Callable, Sequence
from functools import partial

from backend.domain.extraction.assembling import Assembler
from backend.domain.extraction.plan import ExtractionPlan
from backend.domain.jobs.span_jobs import EvaluateSpansJob, EvaluateSpansResult
from gpu_runners.artifacts.rules_first import RulesFirst, predict_with_rules
from gpu_runners.artifacts.span_model import SpanModel, SpanOutput
from gpu_runners.distill.label.dataset import read_inputs
from gpu_runners.errors import JobFailed
from gpu_runners.jobs.label_evaluation import CHUNK, N_WARM_UP, sample_of
from gpu_runners.jobs.own_time import OwnTimes, one_thread, own_times, with_rules
from gpu_runners.models.bases import Base
from gpu_runners.models.encoder_runtimes import load_runtime
from gpu_runners.models.spans.adapter import SpanConfig, from_bytes, head_sizes
from gpu_runners.models.spans.decoding import PLAIN, Calibration
from gpu_runners.models.spans.forward import SpanForward


def evaluate_spans(
    job: EvaluateSpansJob,
    inputs: bytes,
    adapter_blob: bytes,
    *,
    base: Base,
    rules: bytes | None = None,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> EvaluateSpansResult:
    """One answer an input, in order: by the student, by the heads on the frozen base and, of a rules.json, by the
    rules. Raises JobFailed (invalid_dataset, invalid_adapter, invalid_job, base_mismatch)."""
    started = time.monotonic()
    texts = read_inputs(inputs)
    first = None if rules is None else RulesFirst.from_members({"rules.json": rules}, labels=None)
    model, frozen = _models(job, adapter_blob, base)
    rows: list[SpanOutput] = []
    bare: list[str] = []
    for start in range(0, len(texts), CHUNK):
        chunk = texts[start : start + CHUNK]
        rows += model.predict_by_model(chunk)
        bare += [row["output"] for row in frozen.predict_by_model(chunk)]
        on_progress(min(start + CHUNK, len(texts)), len(texts))
    own, ruled_own_ns = _own_times(model, texts, first)
    return EvaluateSpansResult(
        outputs=[row["output"] for row in rows],
        confidences=[row["confidence"] for row in rows],
        fields=[row["fields"] for row in rows],
        baseline_outputs=bare,
        rule_answers=[] if first is None else [a.text if a else None for a in first.answers(texts)],
        latency_us=_latencies(model, texts, None),
        ruled_latency_us=[] if first is None else _latencies(model, texts, first),
        own_ns=own.answers_ns,
        ruled_own_ns=ruled_own_ns,
        own_reference_ns=own.reference_ns,
        own_clock=own.clock,
        device=model.forward.device,
        runner_ms=round((time.monotonic() - started) * 1000),
        n_tokens=sum(one.n_ids for one in model.tokenizer.read(texts)),
    )


def _models(job: EvaluateSpansJob, blob: bytes, base: Base) -> tuple[SpanModel, SpanModel]:
    """The student, and the heads on the frozen base."""
    try:
        plan = ExtractionPlan.from_json(job.plan)
        calibration = Calibration.from_json(job.calibration)
    except (ValueError, TypeError) as error:
        raise JobFailed(f"The job has {error}.", code="invalid_job") from error
    has_lists = any(leaf.list_path for leaf in Assembler(job.schema, plan).leaves)
    adapter, config = from_bytes(blob, head_sizes(plan, has_lists=has_lists)), SpanConfig.from_json(job.adapter_config)
    runtime = load_runtime(base)
    model = SpanModel.build(
        base=base,
        runtime=runtime,
        adapter=adapter,
        config=config,
        schema=job.schema,
        plan=plan,
        calibration=calibration,
    )
    frozen = SpanModel(
        forward=SpanForward(runtime.body({}, rank=1, alpha=1), adapter.baseline),
        tokenizer=model.tokenizer,
        assembler=model.assembler,
        schema=job.schema,
        calibration=PLAIN,
    )
    return model, frozen


def _latencies(model: SpanModel, texts: Sequence[str], rules: RulesFirst | None) -> list[int]:
    """Single-input wall times in microseconds, tokenising included, of up to 50 inputs spread evenly over the set."""
    sample = sample_of(texts)
    for text in sample[:N_WARM_UP]:
        model.predict_by_model([text])
    return [
        predict_with_rules(rules, [text], is_label=False, model=model.predict_by_model)[0]["latency_us"]
        for text in sample
    ]


def _own_times(model: SpanModel, texts: Sequence[str], rules: RulesFirst | None) -> tuple[OwnTimes, list[int]]:
    """The own times of the model on the same sample, and those of rules and then model."""
    sample = sample_of(texts)
    with one_thread():
        model.predict_by_model(sample[:1])
        own = own_times([partial(model.predict_by_model, [text]) for text in sample], device=model.forward.device)
    return own, [] if rules is None else with_rules(rules, sample, own.answers_ns)
