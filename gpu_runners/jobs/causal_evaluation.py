"""Answer held-out inputs with an adapter and with the bare base, both in the same batches of the engine that serves.
The gold answers stay with the backend."""

import math
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import compress
from pathlib import Path

from backend.domain.jobs.causal_jobs import EvaluateCausalJob, EvaluateCausalResult
from gpu_runners.artifacts.rules_first import RulesFirst
from gpu_runners.distill.label.dataset import read_inputs
from gpu_runners.engine.sync import Finished, generate_all
from gpu_runners.engine.torch_engine import TorchEngine
from gpu_runners.errors import JobFailed
from gpu_runners.jobs.own_time import OwnTimes, one_thread, own_times, with_rules
from gpu_runners.models.answers import constraint_of
from gpu_runners.models.causal_adapter import AdapterConfig, from_bytes, write_peft_folder
from gpu_runners.models.causal_base import CausalBase, check_fit
from gpu_runners.models.chat import prompt_ids, prompts_of
from gpu_runners.models.protocol import AdapterRef, Counts, EngineFailed, FinishReason, GenerationRequest, Rejected

N_LATENCIES = 20
N_WARM_UP = 2
# what an input that fills the context by itself is answered with
_NOTHING = Finished(text="", finish_reason=FinishReason.LENGTH, counts=Counts(), logprob=-math.inf)


def evaluate_causal(
    job: EvaluateCausalJob,
    inputs: bytes,
    adapter_blob: bytes,
    *,
    base: CausalBase,
    rules: bytes | None = None,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> EvaluateCausalResult:
    """One answer an input, in order, greedy, by the model and, of a rules.json, by the rules. Raises JobFailed
    (invalid_dataset, invalid_adapter, base_mismatch, unsupported_base, generation_failed)."""
    started = time.monotonic()
    texts = read_inputs(inputs)
    first = None if rules is None else RulesFirst.from_members({"rules.json": rules}, labels=_labels(job))
    config = AdapterConfig.from_json(job.adapter_config)
    check_fit(config, base)
    adapter = from_bytes(adapter_blob, config)
    constraint = constraint_of(job.answer)
    prompts = [tuple(prompt) for prompt in prompts_of(base, job.system, texts)]
    engine = TorchEngine(base)
    with tempfile.TemporaryDirectory(prefix="kolm-adapter-") as folder:
        try:
            write_peft_folder(Path(folder), adapter, config)
            ref = AdapterRef(key=job.adapter_sha256, folder=Path(folder), number=1)

            def request(i: int, adapter: AdapterRef | None) -> GenerationRequest:
                name, most = f"{i}-{adapter is None}", job.max_new_tokens
                return GenerationRequest(
                    id=name, prompt=prompts[i], max_new_tokens=most, adapter=adapter, constraint=constraint
                )

            requests = [request(i, one) for one in (ref, None) for i in range(len(texts))]
            answers = _answer_all(engine, requests, on_progress)
            fitting = [i for i, prompt in enumerate(prompts) if len(prompt) < engine.context]
            timed = [requests[i] for i in fitting]
            latency_us = _latencies(engine, job, base, texts, timed)
            ruled_us = [] if first is None else _latencies(engine, job, base, texts, timed, rules=first)
            times, tokens = _own_times(engine, timed)
            asked = [texts[_place(request)] for request in _sample(timed)]
            ruled_own = [] if first is None else with_rules(first, asked, times.answers_ns)
        finally:
            engine.stop()
    own, bare = answers[: len(texts)], answers[len(texts) :]
    return EvaluateCausalResult(
        outputs=[answer.text for answer in own],
        finish_reasons=[str(answer.finish_reason) for answer in own],
        n_tokens=[answer.counts.completion_tokens for answer in own],
        confidences=[round(math.exp(min(0.0, answer.logprob)), 6) for answer in own],
        baseline_outputs=[answer.text for answer in bare],
        rule_answers=[] if first is None else [a.text if a else None for a in first.answers(texts)],
        latency_us=latency_us,
        ruled_latency_us=ruled_us,
        own_ns=times.answers_ns,
        ruled_own_ns=ruled_own,
        own_tokens=tokens,
        own_reference_ns=times.reference_ns,
        own_clock=times.clock,
        device=str(engine.about["device"]),
        engine=dict(engine.about),
        runner_ms=round((time.monotonic() - started) * 1000),
        n_read=2 * sum(len(prompts[i]) for i in fitting),
        n_written=sum(answer.counts.completion_tokens for answer in answers),
    )


def _labels(job: EvaluateCausalJob) -> list[str] | None:
    return list(job.answer["labels"]) if job.answer["type"] == "label" else None


def _answer_all(
    engine: TorchEngine, requests: Sequence[GenerationRequest], on_progress: Callable[[int, int], None]
) -> list[Finished]:
    reported = 0

    def on_done(done: int) -> None:
        nonlocal reported
        if done - reported >= max(1, len(requests) // 100):
            reported = done
            on_progress(done, len(requests))

    fits = [len(request.prompt) < engine.context for request in requests]
    try:
        answers = iter(generate_all(engine, list(compress(requests, fits)), on_done=on_done))
    except (Rejected, EngineFailed) as error:
        raise JobFailed(f"The held-out inputs cannot be answered: {error}", code="generation_failed") from error
    return [next(answers) if fit else _NOTHING for fit in fits]


def _latencies(
    engine: TorchEngine,
    job: EvaluateCausalJob,
    base: CausalBase,
    texts: Sequence[str],
    requests: Sequence[GenerationRequest],
    *,
    rules: RulesFirst | None = None,
) -> list[int]:
    """Single-input wall times in microseconds, tokenising included, of up to 20 requests spread evenly over them."""
    sample = _sample(requests)
    for request in sample[:N_WARM_UP]:
        generate_all(engine, [request])
    taken = []
    for request in sample:
        text = texts[_place(request)]
        began = time.perf_counter_ns()
        if rules is None or rules.answer(text) is None:
            generate_all(engine, [replace(request, prompt=tuple(prompt_ids(base, job.system, text)))])
        taken.append((time.perf_counter_ns() - began) // 1000)
    return taken


def _own_times(engine: TorchEngine, requests: Sequence[GenerationRequest]) -> tuple[OwnTimes, list[int]]:
    """The own times of single answers to the same sample, and the tokens of each."""
    sample = _sample(requests)
    tokens = [0] * len(sample)

    def answer(i: int) -> None:
        (done,) = generate_all(engine, [sample[i]])
        tokens[i] = done.counts.completion_tokens

    with one_thread(), engine.one_thread():
        answer(0)
        own = own_times([partial(answer, i) for i in range(len(sample))], device=str(engine.about["device"]))
    return own, tokens[: len(own.answers_ns)]


def _sample(requests: Sequence[GenerationRequest]) -> list[GenerationRequest]:
    n = min(N_LATENCIES, len(requests))
    return [requests[i * len(requests) // n] for i in range(n)]


def _place(request: GenerationRequest) -> int:
    """The number of the input that a request answers."""
    return int(request.id.partition("-")[0])
