"""The two jobs of a trial, as a runner gets them and as it brings them back: train one adapter, answer the held-out
inputs with it. An encoder and a causal base have jobs of their own; what differs is here and nowhere after."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from backend.blobs import get_jsonl, has_blob, put_jsonl
from backend.domain.jobs.causal_jobs import (
    DistillCausalJob,
    DistillCausalResult,
    EvaluateCausalJob,
    EvaluateCausalResult,
    StudentSampling,
)
from backend.domain.jobs.runner_jobs import DistillJob, DistillResult, EvaluateJob, EvaluateResult, RunnerJobKind
from backend.domain.jobs.runner_results import (
    BadResult,
    distill_causal_result,
    distill_result,
    evaluate_causal_result,
    evaluate_result,
)
from backend.domain.jobs.span_jobs import (
    DistillSpansJob,
    DistillSpansResult,
    EvaluateSpansJob,
    EvaluateSpansResult,
)
from backend.domain.jobs.span_results import distill_spans_result, evaluate_spans_result
from backend.domain.planning.step_outputs import LabelingOut, SlicingOut
from backend.domain.planning.trial_estimates import MAX_GOLD_ALONE
from backend.domain.planning.trials import Trial, TrialKind
from backend.domain.spec.defaults import answer_max_tokens
from backend.domain.spec.gold import drop_leaks
from backend.domain.spec.parsing import label_names
from backend.domain.spec.task_prompt import answer_form, system_prompt
from backend.runner_jobs.leases import Offer
from workers.step.durable import CompileRun
from workers.training.extraction import pairs_of, saved_plan, schema_of

Trained = DistillResult | DistillSpansResult | DistillCausalResult
Answered = EvaluateResult | EvaluateSpansResult | EvaluateCausalResult


def distill_offer(run: CompileRun, trial: Trial) -> Offer:
    train = run.spec.train
    labeled = run.output(LabelingOut)
    dataset = labeled.dataset
    if trial.kind is TrialKind.ENCODER:
        n_pairs = len(get_jsonl(run.tenant_id, dataset))
        options = replace(train.options(n_pairs), rank=trial.rank, alpha=trial.alpha)
        job = DistillJob(
            base_model=train.base, labels=label_names(run.spec), dataset_sha256=dataset, train=options.to_json()
        )
        return Offer(kind=RunnerJobKind.DISTILL, payload=job.to_json(), inputs=(dataset,))
    if trial.kind is TrialKind.SPANS:
        return _distill_spans_offer(run, trial, dataset)
    return distill_causal_offer(run, trial, labeled.completions or dataset)


def distill_causal_offer(
    run: CompileRun,
    trial: Trial,
    dataset: str,
    *,
    start: DistillCausalResult | None = None,
    sampled: str = "",
) -> Offer:
    """The training of a causal base on `dataset`. With `sampled` (a blob of inputs) the student answers these; from
    `start` it goes on, on answers of its own among others, which are not learnt in patches."""
    causal = run.spec.train.causal
    options = replace(causal.options(), rank=trial.rank, alpha=trial.alpha)
    if start is not None:
        options = replace(options, patch_size=1, patch_share=0.0)
    sampling = StudentSampling(answer=answer_form(run.spec), max_new_tokens=answer_max_tokens(run.spec))
    job = DistillCausalJob(
        base_model=causal.base,
        system=system_prompt(run.spec),
        dataset_sha256=dataset,
        options=options.to_json(),
        start_sha256="" if start is None else start.adapter_sha256,
        start_config={} if start is None else start.adapter_config,
        sampling=sampling.to_json() if sampled else {},
        sampled_sha256=sampled,
    )
    needed = (dataset, job.start_sha256, sampled)
    return Offer(
        kind=RunnerJobKind.DISTILL_CAUSAL,
        payload=_as_before(job.to_json()),
        inputs=tuple(digest for digest in needed if digest),
    )


def _as_before(payload: dict[str, Any]) -> dict[str, Any]:
    """The payload without what it does not use: a runner of the release before knows no such keys."""
    options = dict(payload["options"])
    if not options["soft_weight"]:
        del options["soft_weight"]
    if not payload["start_sha256"]:
        del options["divergence"]
    added = ("start_sha256", "start_config", "sampling", "sampled_sha256")
    return {name: value for name, value in payload.items() if value or name not in added} | {"options": options}


def _distill_spans_offer(run: CompileRun, trial: Trial, dataset: str) -> Offer:
    train, pairs = run.spec.train, pairs_of(run, dataset)
    options = replace(train.spans.options(len(get_jsonl(run.tenant_id, pairs))), rank=trial.rank, alpha=trial.alpha)
    spans = DistillSpansJob(
        base_model=train.base,
        schema=schema_of(run),
        plan=saved_plan(run),
        dataset_sha256=pairs,
        options=options.to_json(),
    )
    return Offer(kind=RunnerJobKind.DISTILL_SPANS, payload=spans.to_json(), inputs=(pairs,))


def read_trained(run: CompileRun, trial: Trial, value: dict[str, Any]) -> Trained:
    """Raises BadResult."""
    result = _RESULTS[trial.kind](value)
    if not has_blob(run.tenant_id, result.adapter_sha256):
        raise BadResult("its adapter was never handed over")
    return result


_RESULTS: dict[TrialKind, Callable[[dict[str, Any]], Trained]] = {
    TrialKind.ENCODER: distill_result,
    TrialKind.SPANS: distill_spans_result,
    TrialKind.CAUSAL: distill_causal_result,
}


def evaluate_offer(run: CompileRun, trained: Trained, heldout: list[dict[str, str]]) -> Offer:
    texts = put_jsonl(run.tenant_id, [{"input": row["input"]} for row in heldout])
    rules = run.output(LabelingOut).rules
    needs = (trained.adapter_sha256, texts, *([rules] if rules else []))
    if isinstance(trained, DistillResult):
        gold, labels = gold_alone(run, heldout), random_labels(run, heldout)
        random = put_jsonl(run.tenant_id, labels) if labels else ""
        job = EvaluateJob(
            base_model=run.spec.train.base,
            base_model_sha256=trained.base_model_sha256,
            labels=label_names(run.spec),
            adapter_sha256=trained.adapter_sha256,
            adapter_config=trained.adapter_config,
            temperature=trained.temperature,
            inputs_sha256=texts,
            rules_sha256=rules,
            gold_sha256=gold,
            random_sha256=random,
        )
        payload = job.to_json()
        if not random:
            del payload["random_sha256"]  # a runner of the release before knows no such key
        inputs = (*needs, *(digest for digest in (gold, random) if digest))
        return Offer(kind=RunnerJobKind.EVALUATE, payload=payload, inputs=inputs)
    if isinstance(trained, DistillSpansResult):
        spans = EvaluateSpansJob(
            base_model=run.spec.train.base,
            base_model_sha256=trained.base_model_sha256,
            schema=schema_of(run),
            plan=saved_plan(run),
            adapter_sha256=trained.adapter_sha256,
            adapter_config=trained.adapter_config,
            calibration=trained.calibration,
            inputs_sha256=texts,
            rules_sha256=rules,
        )
        return Offer(kind=RunnerJobKind.EVALUATE_SPANS, payload=spans.to_json(), inputs=needs)
    causal = EvaluateCausalJob(
        base_model=run.spec.train.causal.base,
        base_model_sha256=trained.base_model_sha256,
        system=system_prompt(run.spec),
        answer=answer_form(run.spec),
        max_new_tokens=answer_max_tokens(run.spec),
        adapter_sha256=trained.adapter_sha256,
        adapter_config=trained.adapter_config,
        inputs_sha256=texts,
        rules_sha256=rules,
    )
    return Offer(kind=RunnerJobKind.EVALUATE_CAUSAL, payload=causal.to_json(), inputs=needs)


def gold_alone(run: CompileRun, heldout: list[dict[str, str]]) -> str:
    """The gold that trains, as a runner reads pairs: at most MAX_GOLD_ALONE, spread evenly. "" where there is none."""
    trained = run.output(SlicingOut).gold_train
    gold = get_jsonl(run.tenant_id, trained) if trained else []
    kept = drop_leaks([row["input"] for row in gold], [row["input"] for row in heldout])
    n = min(MAX_GOLD_ALONE, len(kept))
    chosen = [gold[kept[i * len(kept) // n]] for i in range(n)]
    rows = [{"input": row["input"], "label": row["output"], "weight": 1.0} for row in chosen]
    return put_jsonl(run.tenant_id, rows) if rows else ""


def random_labels(run: CompileRun, heldout: list[dict[str, str]]) -> list[dict[str, Any]]:
    """The labels that were bought at random, as a runner reads pairs, without what is like a held-out input; at most
    MAX_GOLD_ALONE, [] where there are none."""
    digest = run.output(LabelingOut).random_labels
    rows = get_jsonl(run.tenant_id, digest) if digest else []
    kept = drop_leaks([row["input"] for row in rows], [row["input"] for row in heldout])[:MAX_GOLD_ALONE]
    return [{"input": rows[i]["input"], "label": rows[i]["label"], "weight": 1.0} for i in kept]


def read_answered(run: CompileRun, trial: Trial, value: dict[str, Any], *, n: int) -> Answered:
    """Read the answers to `n` held-out inputs. Raises BadResult."""
    if trial.kind is TrialKind.ENCODER:
        return evaluate_result(value, labels=label_names(run.spec), n=n)
    if trial.kind is TrialKind.SPANS:
        return evaluate_spans_result(value, n=n)
    return evaluate_causal_result(value, answer=answer_form(run.spec), n=n)


def student_facts(trained: Trained) -> dict[str, Any]:
    """The student of an encoder's training and its competition; empty where a runner says none."""
    if not isinstance(trained, DistillResult) or not trained.student:
        return {}
    return {"student": trained.student, "competition": trained.competition}


def distill_facts(trained: Trained) -> dict[str, Any]:
    """The facts that receipts and the API tell about a training."""
    resumed: dict[str, Any]
    if isinstance(trained, DistillCausalResult):
        resumed = {"resumed_from_step": trained.resumed_from_step, "tokenizer_sha256": trained.tokenizer_sha256}
    else:
        resumed = {"resumed_from_epoch": trained.resumed_from_epoch, **student_facts(trained)}
    if isinstance(trained, DistillSpansResult):
        resumed |= {"n_aligned": trained.n_aligned}
    return {
        "n_pairs": trained.n_pairs,
        "n_parameters": trained.n_parameters,
        **resumed,
        "runner_ms": trained.runner_ms,
        "active": trained.active,
        "training_log": trained.training_log,
    }
