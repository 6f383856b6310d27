"""The measurement of a trial's held-out answers: the answers, what was found of each, and the conditions. Whole numbers
and texts; a blob keeps it as JSON, with what a task or a base does not have left out."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from backend.domain.evaluation.abstaining import Threshold
from backend.domain.evaluation.own_time import Clock, OwnTime, Unit
from backend.domain.planning.step_outputs import LabelingOut
from backend.domain.planning.trials import TrialKind

_BY_ROW = (
    "predictions",
    "baseline_predictions",
    "gold_predictions",
    "random_predictions",
    "failed",
    "verdicts",
    "baseline_failed",
    "fields",
)
_TIMES = ("own", "head_own")
# what the API and the artifact show beside the figures
_CONDITIONS = (
    "latency_us_p50",
    "latency_us_p95",
    "n_latencies",
    "own",
    "device",
    "leakage",
    "rules",
    "recipes",
    "engine",
    "n_cut",
    "mean_tokens_milli",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleShare:
    """`is_used`: whether the rules answer in the artifact. `marks_ppm` is the sum of their marks on the rows that they
    answer, `model_marks_ppm` that of the model on the same rows."""

    is_used: bool
    n_answered: int
    coverage_ppm: int
    marks_ppm: int = 0
    model_marks_ppm: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TeacherAnswers:
    """The teacher's own answers to the held-out rows of these numbers, "" for none; `failed` as a model's. `why_not`:
    the code of what ended the asking before all rows."""

    rows: list[int]
    answers: list[str]
    failed: list[list[str]] | None = None
    why_not: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """The lists have an entry a held-out row. `failed` names the checks that an answer failed (of json and text tasks),
    `verdicts` is a judge's, `confidences_ppm` are the model's, also where a rule answered (`rule_rows`; then
    `model_predictions` are the model's own answers). The latencies are wall times and tell of the runner, `own` is the
    model's own time (None: measured by the release of before). `recipes` is the pack's part of the receipt.
    `gold_predictions` are those of the head that was fitted on gold alone, `random_predictions` those of the one on
    `n_random` random labels, `head_own` is a head's own time, `common_answer` the training pairs' most typical one
    (json), `teacher` what the teacher answered; None where they were not measured. `threshold` is that of the
    confidences, of a task that abstains. `fields` has what a model that copies spans read from each input: {"path",
    "start", "end", "confidence_ppm"}, with the value's place in code points, None for one that was not copied."""

    kind: TrialKind
    predictions: list[str]
    baseline_predictions: list[str]
    confidences_ppm: list[int]
    latency_us_p50: int
    latency_us_p95: int
    n_latencies: int
    device: str
    own: OwnTime | None = None
    leakage: dict[str, int] | None = None
    engine: dict[str, Any] | None = None
    n_cut: int | None = None
    mean_tokens_milli: int | None = None
    failed: list[list[str]] | None = None
    verdicts: list[str] | None = None
    baseline_failed: list[list[str]] | None = None
    rules: RuleShare | None = None
    rule_rows: list[int] | None = None
    model_predictions: list[str] | None = None
    recipes: dict[str, Any] | None = None
    gold_predictions: list[str] | None = None
    random_predictions: list[str] | None = None
    n_random: int | None = None
    head_own: OwnTime | None = None
    threshold: Threshold | None = None
    common_answer: str | None = None
    teacher: TeacherAnswers | None = None
    fields: list[list[dict[str, Any]]] | None = None

    def to_json(self) -> dict[str, Any]:
        values = {one.name: getattr(self, one.name) for one in dataclasses.fields(self)}
        there = {name: value for name, value in values.items() if value is not None}
        parts = {name: getattr(self, name) for name in ("rules", "teacher")}
        nested = {name: asdict(part) for name, part in parts.items() if part is not None}
        times = {name: getattr(self, name) for name in _TIMES}
        if self.threshold is not None:
            nested["threshold"] = self.threshold.to_json()
        return there | nested | {name: time.to_json() for name, time in times.items() if time is not None}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Measurement":
        own = {one.name: value[one.name] for one in dataclasses.fields(cls) if one.name in value}
        rules = RuleShare(**own["rules"]) if own.get("rules") else None
        times = {name: OwnTime.from_json(own[name]) for name in _TIMES if own.get(name)}
        teacher = TeacherAnswers(**own["teacher"]) if own.get("teacher") else None
        threshold = Threshold.from_json(own["threshold"]) if own.get("threshold") else None
        parts = {"rules": rules, "teacher": teacher, "threshold": threshold}
        return cls(**own | {"kind": TrialKind(own["kind"])} | parts | times)

    def of_rows(self, rows: Sequence[int]) -> "Measurement":
        """The measurement of these rows alone."""
        columns: dict[str, Any] = {name: getattr(self, name) for name in _BY_ROW}
        picked: dict[str, Any] = {name: [of[i] for i in rows] for name, of in columns.items() if of is not None}
        return replace(self, **picked)

    def conditions(self) -> dict[str, Any]:
        """The conditions that the API and the artifact show beside the figures."""
        value = self.to_json()
        return {name: value[name] for name in _CONDITIONS if name in value}

    def own_time(self, unit: Unit) -> OwnTime:
        """The own time by this unit; of a measurement without one, the median wall time stands for it."""
        if self.own is not None:
            return self.own
        units_milli = (self.mean_tokens_milli or 1000) if unit is Unit.TOKEN else 1000
        each_ns = self.latency_us_p50 * 1_000_000 // max(1, units_milli)
        return OwnTime(unit=unit, clock=Clock.WALL, measured_ns=each_ns, reference_ns=0, units_milli=units_milli)

    @property
    def used_rules(self) -> RuleShare | None:
        """The rules' share where they answer in the artifact."""
        return self.rules if self.rules is not None and self.rules.is_used else None

    def shipped_rules(self, labeling: LabelingOut) -> str:
        """The digest of the rules that ship; "" for none."""
        return "" if self.used_rules is None else labeling.rules

    @property
    def pack_sha256(self) -> str:
        """The recipe pack that ships; "" for none."""
        return str((self.recipes or {}).get("pack_sha256", ""))


def quantiles_us(latencies_us: Sequence[int]) -> tuple[int, int]:
    """Median and 95th percentile of some latencies."""
    ordered = sorted(latencies_us)
    return ordered[len(ordered) // 2], ordered[min(len(ordered) - 1, len(ordered) * 95 // 100)]
