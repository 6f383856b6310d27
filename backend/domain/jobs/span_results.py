"""The results of a span student's jobs that a runner brought back, judged as those of `runner_results` are."""

from typing import Any

from backend.domain.jobs.result_checks import (
    check,
    check_fields,
    check_latencies,
    is_count,
    is_digest,
    is_share,
    is_string,
    is_whole,
    read,
)
from backend.domain.jobs.runner_results import MAX_OUTPUT, check_own_times, check_rules, check_training, check_work
from backend.domain.jobs.span_jobs import DistillSpansResult, EvaluateSpansResult

MOST_LINE = 10**9  # a slope or an offset of log-odds, in millionths


def distill_spans_result(value: dict[str, Any]) -> DistillSpansResult:
    result = read(DistillSpansResult, value)
    for name in ("adapter_sha256", "base_model_sha256"):
        check(is_digest(getattr(result, name)), f"{name} is no sha256")
    for name in ("n_pairs", "n_aligned", "n_parameters", "runner_ms", "resumed_from_epoch"):
        check(is_count(getattr(result, name)), f"{name} is no count")
    check(result.n_aligned <= result.n_pairs, "n_aligned is more than n_pairs")
    check_work(result.n_tokens)
    check_training(result)
    check(isinstance(result.calibration, dict), "the calibration is no object")
    for kind, line in result.calibration.items():
        is_line = isinstance(line, list) and len(line) == 2 and all(is_whole(x, -MOST_LINE, MOST_LINE) for x in line)
        check(is_string(kind, 50) and is_line and line[0] > 0, "the calibration is not of rising lines")
    return result


def evaluate_spans_result(value: dict[str, Any], *, n: int) -> EvaluateSpansResult:
    """Check a result for `n` held-out inputs."""
    result = read(EvaluateSpansResult, value)
    for name in ("outputs", "confidences", "fields", "baseline_outputs"):
        rows = getattr(result, name)
        check(isinstance(rows, list) and len(rows) == n, f"{name} is not one entry for each of {n} held-out inputs")
    for name in ("outputs", "baseline_outputs"):
        check(all(is_string(text, MAX_OUTPUT) for text in getattr(result, name)), f"{name} holds what is no text")
    check(all(is_share(one) for one in result.confidences), "a confidence is not between 0 and 1")
    check_fields(result.fields)
    check_latencies(result.latency_us)
    check_rules(result, None, n)
    check_own_times(result, n)
    check(is_string(result.device, 200), "the device is no text")
    check(is_count(result.runner_ms), "runner_ms is no count")
    check_work(result.n_tokens)
    return result
