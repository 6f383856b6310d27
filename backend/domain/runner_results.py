"""What a runner brought back, judged before anything is built on it: a runner is trusted with work, not with the truth.

Each function gives the typed result or raises BadResult with what is wrong. What passes can be stored (Postgres keeps
no NUL), signed (no NaN, no number beyond 2**53 as parts per million) and reckoned with.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeVar

from backend.domain.causal_jobs import DistillCausalResult, EvaluateCausalResult
from backend.domain.errors import OurError
from backend.domain.runner_jobs import DistillResult, EvaluateResult, InferResult, SelectResult

MAX_TEXT = 4_000
MAX_DEPTH = 8
MAX_NUMBER = 2**53 // 1_000_000
MAX_PPM = 2**53 - 1  # a score may be a billion
MAX_TOKENS_A_TEXT = 256
MAX_LOG = 200_000
MAX_OUTPUT = 100_000  # characters of one generated answer
MAX_OUTPUT_TOKENS = 1_000_000
FINISH_REASONS = frozenset(("stop", "length"))
MAX_MS = 1_000_000_000  # eleven days
_HEX = frozenset("0123456789abcdef")
R = TypeVar("R", DistillResult, EvaluateResult, InferResult, SelectResult, DistillCausalResult, EvaluateCausalResult)


class BadResult(OurError):
    """The runner reported success with something that cannot be one."""

    code = "runner_bad_result"

    def __init__(self, what: str) -> None:
        super().__init__(f"What the runner brought back cannot be used: {what}.")


def distill_result(value: dict[str, Any]) -> DistillResult:
    result = _read(DistillResult, value)
    for name in ("adapter_sha256", "base_model_sha256"):
        _check(_is_digest(getattr(result, name)), f"{name} is no sha256")
    for name in ("n_pairs", "n_parameters", "runner_ms", "resumed_from_epoch"):
        _check(_is_count(getattr(result, name)), f"{name} is no count")
    _check_training(result)
    _check(_is_number(result.temperature) and 0.01 <= result.temperature <= 100, "the temperature is out of range")
    return result


def evaluate_result(value: dict[str, Any], *, labels: Collection[str], n: int) -> EvaluateResult:
    """For `n` held-out inputs of a task with these labels."""
    result = _read(EvaluateResult, value)
    for name in ("predictions", "baseline_predictions", "confidences"):
        rows = getattr(result, name)
        _check(isinstance(rows, list), f"{name} is no list")
        _check(len(rows) == n, f"{len(rows)} {name} for {n} held-out inputs")
    known = frozenset(labels)
    for name in ("predictions", "baseline_predictions"):
        _check(all(isinstance(x, str) and x in known for x in getattr(result, name)), f"{name} holds what is no label")
    _check(all(_is_share(x) for x in result.confidences), "a confidence is not between 0 and 1")
    _check_latencies(result.latency_us)
    _check(_is_text(result.device, 200), "the device is no name")
    _check(_is_count(result.runner_ms), "runner_ms is no count")
    return result


def distill_causal_result(value: dict[str, Any]) -> DistillCausalResult:
    result = _read(DistillCausalResult, value)
    for name in ("adapter_sha256", "base_model_sha256", "tokenizer_sha256"):
        _check(_is_digest(getattr(result, name)), f"{name} is no sha256")
    for name in ("n_pairs", "n_parameters", "runner_ms", "resumed_from_step"):
        _check(_is_count(getattr(result, name)), f"{name} is no count")
    _check_training(result)
    return result


def _check_training(result: DistillResult | DistillCausalResult) -> None:
    is_config = isinstance(result.adapter_config, dict) and _is_plain(result.adapter_config, floats=False)
    _check(is_config, "adapter_config is not an object of texts and whole numbers")
    _check(isinstance(result.active, dict) and _is_plain(result.active), "active is not a plain object")
    is_log = isinstance(result.training_log, list) and all(isinstance(row, dict) for row in result.training_log)
    _check(is_log and _is_plain(result.training_log), "training_log is not a list of plain objects")


def evaluate_causal_result(value: dict[str, Any], *, answer: Mapping[str, Any], n: int) -> EvaluateCausalResult:
    """For `n` held-out inputs and the job's `answer`: of a label task every answer is one of its labels. Whether an
    answer fits a schema is for the evaluation to say, not a fault of the runner."""
    result = _read(EvaluateCausalResult, value)
    for name in ("outputs", "baseline_outputs", "finish_reasons", "n_tokens", "confidences"):
        rows = getattr(result, name)
        _check(isinstance(rows, list), f"{name} is no list")
        _check(len(rows) == n, f"{len(rows)} {name} for {n} held-out inputs")
    known = frozenset(answer["labels"]) if answer["type"] == "label" else None
    for name in ("outputs", "baseline_outputs"):
        rows = getattr(result, name)
        _check(all(_is_text(x, MAX_OUTPUT) for x in rows), f"{name} holds what is no text")
        _check(known is None or known.issuperset(rows), f"{name} holds what is no label")
    _check_endings(result.finish_reasons, result.n_tokens)
    _check(all(_is_share(x) for x in result.confidences), "a confidence is not between 0 and 1")
    _check_latencies(result.latency_us)
    _check(len(result.latency_us) <= n, "there are more latencies than inputs")
    _check(_is_text(result.device, 200), "the device is no name")
    _check(isinstance(result.engine, dict) and _is_plain(result.engine), "engine is not a plain object")
    _check(_is_count(result.runner_ms), "runner_ms is no count")
    return result


def _check_endings(reasons: Sequence[object], n_tokens: Sequence[object]) -> None:
    _check(all(isinstance(x, str) and x in FINISH_REASONS for x in reasons), "a finish reason is not stop or length")
    _check(all(_is_whole(x, 0, MAX_OUTPUT_TOKENS) for x in n_tokens), "n_tokens holds what is no count")


def infer_result(value: dict[str, Any], *, n: int, task_type: str = "label") -> InferResult:
    """For `n` inputs of a label, json or text task."""
    result = _read(InferResult, value)
    _check(isinstance(result.outputs, list) and len(result.outputs) == n, f"not one output for each of {n} inputs")
    parts = {"label", "confidence"} if task_type == "label" else {"output", "finish_reason", "n_tokens"}
    for row in result.outputs:
        _check(isinstance(row, dict) and set(row) == parts | {"latency_us"}, "an output lacks its parts")
        if task_type == "label":
            _check(_is_text(row["label"], MAX_TEXT), "a label is no text")
            _check(_is_share(row["confidence"]), "a confidence is not between 0 and 1")
        else:
            _check(_is_text(row["output"], MAX_OUTPUT), "an output is no text")
            _check_endings([row["finish_reason"]], [row["n_tokens"]])
    _check_latencies([row["latency_us"] for row in result.outputs])
    _check(_is_count(result.load_ms), "load_ms is no count")
    return result


def select_result(value: dict[str, Any], *, n: int, k: int | None, is_text: bool) -> SelectResult:
    """For `n` rows of which at most `k` were to be kept (None: any number)."""
    result = _read(SelectResult, value)
    _check(_are_rows(result.picks, n), "the picks are not different rows")
    _check(k is None or len(result.picks) <= k, f"{len(result.picks)} picks where K is {k}")
    _check(_are_rows(result.floor_dropped, n), "floor_dropped does not hold different rows")
    _check(not set(result.picks) & set(result.floor_dropped), "a pick is below the floor")
    nearest = result.nearest_pick_ppm
    is_spread = isinstance(nearest, list) and all(x is None or _is_whole(x, 0, MAX_PPM) for x in nearest)
    _check(is_spread and len(nearest) == len(result.picks), "nearest_pick_ppm does not fit the picks")
    is_split = isinstance(result.cluster_of, list) and all(_is_whole(x, -1, n - 1) for x in result.cluster_of)
    _check(is_split and len(result.cluster_of) == n, f"cluster_of is not one cluster for each of {n} rows")
    is_report = isinstance(result.report, dict) and _is_plain(result.report, floats=False, most=MAX_PPM)
    _check(is_report, "the report is not an object of texts and whole numbers")
    _check(_is_text(result.log, MAX_LOG) and _is_text(result.embedder, 200), "the log or the embedder is no text")
    _check(_is_whole(result.n_tokens, 0, n * MAX_TOKENS_A_TEXT if is_text else 0), "n_tokens is not what n texts have")
    _check(_is_count(result.runner_ms), "runner_ms is no count")
    return result


def _are_rows(value: object, n: int) -> bool:
    is_list = isinstance(value, list) and all(_is_whole(x, 0, n - 1) for x in value)
    return is_list and len(set(value)) == len(value)  # type: ignore[call-overload,arg-type]


def _is_whole(value: object, low: int, high: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def _read(kind: type[R], value: dict[str, Any]) -> R:
    try:
        return kind.from_json(value)
    except (ValueError, TypeError) as wrong:
        raise BadResult(str(wrong)) from wrong


def _check(is_right: bool, what: str) -> None:
    if not is_right:
        raise BadResult(what)


def _check_latencies(values: Sequence[object]) -> None:
    is_list = isinstance(values, list) and len(values) > 0
    _check(is_list and all(_is_count(value) for value in values), "a latency is no count of microseconds")


def _is_digest(value: object) -> bool:
    return isinstance(value, str) and len(value) == 64 and _HEX.issuperset(value)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_MS


def _is_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) <= MAX_NUMBER and math.isfinite(value)


def _is_share(value: object) -> bool:
    return _is_number(value) and 0 <= value <= 1  # type: ignore[operator]


def _is_text(value: object, longest: int) -> bool:
    return isinstance(value, str) and len(value) <= longest and "\x00" not in value and _is_unicode(value)


def _is_unicode(text: str) -> bool:
    return not any("\ud800" <= char <= "\udfff" for char in text)


def _is_plain(value: object, *, floats: bool = True, most: int = MAX_NUMBER, depth: int = 0) -> bool:
    """JSON of bounded depth, texts and numbers."""
    if depth > MAX_DEPTH:
        return False
    if isinstance(value, dict):
        parts = [part for name, part in value.items() if _is_text(name, 200)]
        return len(parts) == len(value) and _is_plain(parts, floats=floats, most=most, depth=depth)
    if isinstance(value, list):
        return all(_is_plain(item, floats=floats, most=most, depth=depth + 1) for item in value)
    if isinstance(value, str):
        return _is_text(value, MAX_TEXT)
    if value is None or isinstance(value, bool):
        return True
    return _is_whole(value, -most, most) if isinstance(value, int) else floats and _is_number(value)
