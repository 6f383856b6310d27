"""The results that a runner brought back, judged before anything is built on it: a runner is trusted with work, not
with the truth.

Each function gives the typed result or raises BadResult with what is wrong. What passes can be stored (Postgres keeps
no NUL), signed (no NaN, no number beyond 2**53 as parts per million) and reckoned with.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from backend.domain.jobs.causal_jobs import DistillCausalResult, EvaluateCausalResult
from backend.domain.jobs.result_checks import (
    MAX_TEXT,
    check,
    check_fields,
    check_latencies,
    is_count,
    is_digest,
    is_number,
    is_plain,
    is_share,
    is_string,
    is_whole,
    read,
)
from backend.domain.jobs.result_checks import BadResult as BadResult
from backend.domain.jobs.runner_jobs import DistillResult, EvaluateResult, InferResult, SelectResult
from backend.domain.jobs.span_jobs import DistillSpansResult, EvaluateSpansResult
from backend.domain.jobs.students import LOG_LOSS, Student

Timed = EvaluateResult | EvaluateSpansResult | EvaluateCausalResult
MAX_PPM = 2**53 - 1  # a score may be a billion
MAX_TOKENS_A_TEXT = 256
MAX_LOG = 200_000
MAX_OUTPUT = 100_000  # characters of one generated answer
MAX_OUTPUT_TOKENS = 1_000_000
OWN_CLOCKS = frozenset(("cpu", "device"))
MAX_NS = 10**15  # eleven days; a thousand of them are a whole number that JSON keeps
FINISH_REASONS = frozenset(("stop", "length"))
MOST_LOG_LOSS = 1_000_000_000  # millionths of a nat: a thousand nats are no calibrated answer


def distill_result(value: dict[str, Any]) -> DistillResult:
    result = read(DistillResult, value)
    for name in ("adapter_sha256", "base_model_sha256"):
        check(is_digest(getattr(result, name)), f"{name} is no sha256")
    for name in ("n_pairs", "n_parameters", "runner_ms", "resumed_from_epoch"):
        check(is_count(getattr(result, name)), f"{name} is no count")
    check_work(result.n_tokens)
    check_training(result)
    check(is_number(result.temperature) and 0.01 <= result.temperature <= 100, "the temperature is out of range")
    confidences, right = result.held_confidences_ppm, result.held_right
    are_lists = isinstance(confidences, list) and isinstance(right, list) and len(confidences) == len(right)
    check(are_lists and len(right) <= result.n_pairs, "held answers are not one entry for each of some pairs")
    check(all(is_whole(x, 0, 1_000_000) for x in confidences), "held_confidences_ppm are no shares")
    check(all(isinstance(x, bool) for x in right), "held_right says something else than right or wrong")
    check(
        isinstance(result.student, str) and result.student in {"", *Student}, "the student is none of those there are"
    )
    _check_competition(result)
    return result


def _check_competition(result: DistillResult) -> None:
    """Counts of each student once, the result's own first."""
    rows = result.competition
    check(
        isinstance(rows, list) and all(isinstance(row, dict) for row in rows), "the competition is no list of objects"
    )
    keys = {"student", "n", "correct", "accuracy_ppm", "better", "worse"}
    check(all(set(row) in (keys, keys | {LOG_LOSS}) for row in rows), "a standing has other keys")
    names = [row["student"] for row in rows]
    are_names = all(isinstance(name, str) and name in set(Student) for name in names) and len(set(names)) == len(names)
    check(are_names and names[:1] in ([], [result.student]), "the competition is not of each student once")
    for row in rows:
        check(is_whole(row["n"], 1, result.n_pairs), "a standing is of no pairs")
        counts = (row["correct"], row["better"], row["worse"])
        check(all(is_whole(count, 0, row["n"]) for count in counts), "a standing has counts beyond its pairs")
        check(is_whole(row.get(LOG_LOSS, 0), 0, MOST_LOG_LOSS), "a standing's log-loss is no such")
        check(row["accuracy_ppm"] == row["correct"] * 1_000_000 // row["n"], "a standing's accuracy is not its counts'")


def evaluate_result(value: dict[str, Any], *, labels: Collection[str], n: int) -> EvaluateResult:
    """Check a result for `n` held-out inputs of a task with these labels."""
    result = read(EvaluateResult, value)
    for name in ("predictions", "baseline_predictions", "confidences"):
        rows = getattr(result, name)
        check(isinstance(rows, list), f"{name} is no list")
        check(len(rows) == n, f"{len(rows)} {name} for {n} held-out inputs")
    known = frozenset(labels)
    for name in ("predictions", "baseline_predictions"):
        check(all(isinstance(x, str) and x in known for x in getattr(result, name)), f"{name} holds what is no label")
    for name in ("gold_predictions", "random_predictions"):
        rows = getattr(result, name)
        check(isinstance(rows, list) and len(rows) in (0, n), f"{name} is not one entry an input")
        check(all(isinstance(x, str) and x in known for x in rows), f"{name} holds what is no label")
    check(all(is_share(x) for x in result.confidences), "a confidence is not between 0 and 1")
    check_latencies(result.latency_us)
    check_rules(result, known, n)
    check_own_times(result, n)
    _check_head_times(result, n)
    check(is_string(result.device, 200), "the device is no name")
    check(is_count(result.runner_ms), "runner_ms is no count")
    check_work(result.n_tokens)
    return result


def distill_causal_result(value: dict[str, Any]) -> DistillCausalResult:
    result = read(DistillCausalResult, value)
    for name in ("adapter_sha256", "base_model_sha256", "tokenizer_sha256"):
        check(is_digest(getattr(result, name)), f"{name} is no sha256")
    for name in ("n_pairs", "n_parameters", "runner_ms", "resumed_from_step"):
        check(is_count(getattr(result, name)), f"{name} is no count")
    check(result.samples_sha256 == "" or is_digest(result.samples_sha256), "samples_sha256 is no sha256")
    check_work(result.n_tokens, result.n_read, result.n_written)
    check_training(result)
    return result


def check_training(result: DistillResult | DistillSpansResult | DistillCausalResult) -> None:
    """Check the config, the settings and the log of a training."""
    is_config = isinstance(result.adapter_config, dict) and is_plain(result.adapter_config, floats=False)
    check(is_config, "adapter_config is not an object of texts and whole numbers")
    check(isinstance(result.active, dict) and is_plain(result.active), "active is not a plain object")
    is_log = isinstance(result.training_log, list) and all(isinstance(row, dict) for row in result.training_log)
    check(is_log and is_plain(result.training_log), "training_log is not a list of plain objects")


def evaluate_causal_result(value: dict[str, Any], *, answer: Mapping[str, Any], n: int) -> EvaluateCausalResult:
    """Check a result for `n` held-out inputs and the job's `answer`: of a label task every answer is one of its labels.
    Whether an answer fits a schema is for the evaluation to say, not a fault of the runner."""
    result = read(EvaluateCausalResult, value)
    for name in ("outputs", "baseline_outputs", "finish_reasons", "n_tokens", "confidences"):
        rows = getattr(result, name)
        check(isinstance(rows, list), f"{name} is no list")
        check(len(rows) == n, f"{len(rows)} {name} for {n} held-out inputs")
    known = frozenset(answer["labels"]) if answer["type"] == "label" else None
    for name in ("outputs", "baseline_outputs"):
        rows = getattr(result, name)
        check(all(is_string(x, MAX_OUTPUT) for x in rows), f"{name} holds what is no text")
        check(known is None or known.issuperset(rows), f"{name} holds what is no label")
    _check_endings(result.finish_reasons, result.n_tokens)
    check(all(is_share(x) for x in result.confidences), "a confidence is not between 0 and 1")
    check_latencies(result.latency_us)
    check(len(result.latency_us) <= n, "there are more latencies than inputs")
    check_rules(result, known, n)
    check_own_times(result, n)
    are_counted = len(result.own_tokens) == len(result.own_ns)
    check(are_counted and all(is_whole(x, 0, MAX_OUTPUT_TOKENS) for x in result.own_tokens), "own_tokens are no counts")
    check(is_string(result.device, 200), "the device is no name")
    check(isinstance(result.engine, dict) and is_plain(result.engine), "engine is not a plain object")
    check(is_count(result.runner_ms), "runner_ms is no count")
    check_work(result.n_read, result.n_written)
    return result


def check_work(*counts: object) -> None:
    """Check the counts of work: whole numbers. How many there can be is for who bills them."""
    check(all(is_whole(count, 0, MAX_PPM) for count in counts), "a count of work is no whole number")


def check_rules(result: Timed, known: Collection[str] | None, n: int) -> None:
    """Check what rules answered: nothing at all, or one entry an input."""
    rule_answers = result.rule_answers
    check(isinstance(rule_answers, list) and len(rule_answers) in (0, n), "rule_answers is not one entry an input")
    check(all(x is None or is_string(x, MAX_OUTPUT) for x in rule_answers), "rule_answers holds what is no text")
    is_known = known is None or all(x is None or x in known for x in rule_answers)
    check(is_known, "rule_answers holds what is no label")
    if rule_answers:
        check_latencies(result.ruled_latency_us)
    else:
        check(result.ruled_latency_us == [], "there are latencies of rules and no rules")


def check_own_times(result: Timed, n: int) -> None:
    """Check the own times: none at all of a runner that measured none, else those of some of the inputs."""
    own, ruled = result.own_ns, result.ruled_own_ns
    check(isinstance(own, list) and len(own) <= n, "own_ns is no list of some of the inputs")
    if not own:
        check(ruled == [] and result.own_clock == "", "there are parts of own times and no own times")
        return
    check(isinstance(ruled, list) and len(ruled) in (0, len(own)), "ruled_own_ns are not of the same answers")
    check(all(is_whole(x, 0, MAX_NS) for x in (*own, *ruled)), "an own time is no count of nanoseconds")
    check(is_whole(result.own_reference_ns, 0, MAX_NS), "own_reference_ns is no count of nanoseconds")
    check(result.own_clock in OWN_CLOCKS, "own_clock is no clock")
    check(bool(ruled) == bool(result.rule_answers), "there are own times of rules and no rules, or rules without")


def _check_head_times(result: EvaluateResult, n: int) -> None:
    """Check the own times of a head on the frozen base, of some of the inputs or of none."""
    times = result.head_own_ns
    is_some = isinstance(times, list) and len(times) <= n and all(is_whole(x, 0, MAX_NS) for x in times)
    check(is_some, "head_own_ns are no counts of nanoseconds of some of the inputs")
    check(is_whole(result.head_reference_ns, 0, MAX_NS), "head_reference_ns is no count of nanoseconds")
    check(not times or result.own_clock in OWN_CLOCKS, "there are own times of a head and no clock")


def _check_endings(reasons: Sequence[object], n_tokens: Sequence[object]) -> None:
    check(all(isinstance(x, str) and x in FINISH_REASONS for x in reasons), "a finish reason is not stop or length")
    check(all(is_whole(x, 0, MAX_OUTPUT_TOKENS) for x in n_tokens), "n_tokens holds what is no count")


def infer_result(value: dict[str, Any], *, n: int, task_type: str = "label") -> InferResult:
    """Check a result for `n` inputs of a label, json or text task; `rule` is the number of the rule that answered."""
    result = read(InferResult, value)
    check(isinstance(result.outputs, list) and len(result.outputs) == n, f"not one output for each of {n} inputs")
    parts = {"label", "confidence"} if task_type == "label" else {"output", "finish_reason", "n_tokens"}
    for row in result.outputs:
        optional = {"rule", "is_unsure"} if task_type == "label" else {"rule", "confidence", "fields"}
        check(isinstance(row, dict) and set(row) - optional == parts | {"latency_us"}, "an output lacks its parts")
        check(isinstance(row.get("is_unsure", False), bool), "is_unsure is neither true nor false")
        check(is_whole(row.get("rule", 0), 0, MAX_PPM), "rule is no number of a rule")
        if task_type == "label":
            check(is_string(row["label"], MAX_TEXT), "a label is no text")
            check(is_share(row["confidence"]), "a confidence is not between 0 and 1")
        else:
            check(is_string(row["output"], MAX_OUTPUT), "an output is no text")
            _check_endings([row["finish_reason"]], [row["n_tokens"]])
            check(is_share(row.get("confidence", 0)), "a confidence is not between 0 and 1")
            check_fields([row.get("fields", [])])
    check_latencies([row["latency_us"] for row in result.outputs])
    check(is_count(result.load_ms), "load_ms is no count")
    return result


def select_result(value: dict[str, Any], *, n: int, k: int | None, is_text: bool) -> SelectResult:
    """Check a result for `n` rows of which at most `k` were to be kept (None: any number)."""
    result = read(SelectResult, value)
    check(_are_rows(result.picks, n), "the picks are not different rows")
    check(k is None or len(result.picks) <= k, f"{len(result.picks)} picks where K is {k}")
    check(_are_rows(result.floor_dropped, n), "floor_dropped does not hold different rows")
    check(not set(result.picks) & set(result.floor_dropped), "a pick is below the floor")
    nearest = result.nearest_pick_ppm
    is_spread = isinstance(nearest, list) and all(x is None or is_whole(x, 0, MAX_PPM) for x in nearest)
    check(is_spread and len(nearest) == len(result.picks), "nearest_pick_ppm does not fit the picks")
    is_split = isinstance(result.cluster_of, list) and all(is_whole(x, -1, n - 1) for x in result.cluster_of)
    check(is_split and len(result.cluster_of) == n, f"cluster_of is not one cluster for each of {n} rows")
    is_report = isinstance(result.report, dict) and is_plain(result.report, floats=False, most=MAX_PPM)
    check(is_report, "the report is not an object of texts and whole numbers")
    check(is_string(result.log, MAX_LOG) and is_string(result.embedder, 200), "the log or the embedder is no text")
    check(is_whole(result.n_tokens, 0, n * MAX_TOKENS_A_TEXT if is_text else 0), "n_tokens is not what n texts have")
    check(is_count(result.runner_ms), "runner_ms is no count")
    return result


def _are_rows(value: object, n: int) -> bool:
    is_list = isinstance(value, list) and all(is_whole(x, 0, n - 1) for x in value)
    return is_list and len(set(value)) == len(value)  # type: ignore[call-overload,arg-type]
