"""The figures of the compile page on cost, time and quality: rows of the database as values that a template prints.

Counts are kept and shares derived; every figure is one that the compile's rows hold.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.utils import timezone

from backend.compiles.models import Compile, StepRun
from backend.console.charts import heat
from backend.domain.evaluation.classification import NO_ANSWER
from backend.domain.evaluation.kscore import WEIGHTS
from backend.domain.lifecycle import TERMINAL, CompileStatus, StepStatus

WORDS = {
    "slicing": "Slicing",
    "synthesis": "Synthesis",
    "verification": "Verification",
    "selection": "Selection",
    "labeling": "Labeling",
    "distillation": "Distillation",
    "evaluation": "Evaluation",
    "gate": "Gate",
    "packaging": "Packaging",
}
DOES = {
    "slicing": "splits the task and holds gold out",
    "synthesis": "the teacher writes candidates",
    "verification": "checks and scores them",
    "selection": "keeps K of N",
    "labeling": "the teacher labels the picks",
    "distillation": "trains the small model",
    "evaluation": "answers the held-out gold",
    "gate": "checks the floors and the K-score",
    "packaging": "signs the .kolm",
}
FLOORS = {
    "heldout_size": "Held-out examples",
    "accuracy_lower": "Accuracy, lower bound",
    "beat_majority": "Beats the majority label",
    "beat_baseline": "Beats the base without an adapter",
    "alternatives": "Not clearly worse than an alternative",
    "worst_class_recall": "Recall of the worst label",
    "worst_field_f1": "F1 of the worst field",
    "k_min": "K-score",
}
MAX_MATRIX_LABELS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One line of the timeline. The `*_x` are places on the cost bar, 0 to 1,000; None without an estimate."""

    row: StepRun
    word: str
    does: str
    took_s: float | None
    share: int | None  # percent done
    low: int
    expected: int
    high: int
    spent_x: int
    low_x: int
    expected_x: int
    high_x: int

    @property
    def band(self) -> int:
        return max(2, self.high_x - self.low_x) if self.high else 0

    @property
    def is_above(self) -> bool:
        return self.row.spent_microusd > self.high

    @property
    def is_open(self) -> bool:
        return self.row.status == StepStatus.RUNNING


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    low: int
    expected: int
    high: int
    spent: int
    waste: int
    reserved: int
    budget: int
    spent_share: int  # percent of the budget

    @property
    def left(self) -> int:
        return max(0, self.budget - self.spent - self.reserved)


def timeline(rows: Sequence[StepRun], *, now: datetime | None = None) -> list[Step]:
    """The steps in order, each with its cost on one common scale."""
    now = now or timezone.now()
    highest = max((max(row.estimate.get("high_microusd", 0), row.spent_microusd) for row in rows), default=0)

    def x(amount: int) -> int:
        # a square root: the dear steps would flatten the others to nothing
        return round(1000 * (amount / highest) ** 0.5) if highest else 0

    return [
        Step(
            row=row,
            word=WORDS.get(row.name, row.name),
            does=DOES.get(row.name, ""),
            took_s=_seconds(row.started_at, row.ended_at, now),
            share=min(100, 100 * row.done // row.total) if row.total else None,
            low=row.estimate.get("low_microusd", 0),
            expected=row.estimate.get("expected_microusd", 0),
            high=row.estimate.get("high_microusd", 0),
            spent_x=x(row.spent_microusd),
            low_x=x(row.estimate.get("low_microusd", 0)),
            expected_x=x(row.estimate.get("expected_microusd", 0)),
            high_x=x(row.estimate.get("high_microusd", 0)),
        )
        for row in rows
    ]


def costs(row: Compile) -> Costs:
    total = row.estimate.get("total") or {}
    return Costs(
        low=total.get("low_microusd", 0),
        expected=total.get("expected_microusd", 0),
        high=total.get("high_microusd", 0),
        spent=row.spent_microusd,
        waste=row.waste_microusd,
        reserved=row.reserved_microusd,
        budget=row.budget_microusd,
        spent_share=min(100, 100 * row.spent_microusd // row.budget_microusd) if row.budget_microusd else 0,
    )


def took_s(row: Compile) -> float | None:
    return _seconds(row.started_at, row.ended_at, timezone.now())


def _seconds(start: datetime | None, end: datetime | None, now: datetime) -> float | None:
    return None if start is None else max(0.0, ((end or now) - start).total_seconds())


def is_over(row: Compile) -> bool:
    return CompileStatus(row.status) in TERMINAL


# --- the gate ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Floor:
    """One floor; `low` and `high` are the interval around what was measured, None where it is a count or a sum."""

    name: str
    word: str
    passed: bool
    unit: str
    measured: int
    required: int
    message: str
    point: int | None = None
    low: int | None = None
    high: int | None = None

    @property
    def place(self) -> dict[str, int] | None:
        """Return where things stand on a bar of 1,000."""
        if self.unit != "ppm" or self.point is None:
            return None
        low, high = (self.point if bound is None else bound for bound in (self.low, self.high))
        return {
            "low": low // 1000,
            "width": max(2, (high - low) // 1000),
            "point": self.point // 1000,
            "required": self.required // 1000,
        }


def floors(row: Compile) -> list[Floor]:
    """The gate's floors as they were judged, each with its Wilson interval where it is a proportion."""
    gate, evaluation = row.gate or {}, row.evaluation or {}
    intervals = _intervals(evaluation)
    judged = []
    for floor in gate.get("floors", []):
        point, low, high = intervals.get(floor["name"], (None, None, None))
        if floor["unit"] == "ppm" and point is None:
            point = floor["measured"]
        judged.append(
            Floor(
                **{key: floor[key] for key in ("name", "passed", "unit", "measured", "required", "message")},
                word=FLOORS.get(floor["name"], floor["name"]),
                point=point,
                low=low,
                high=high,
            )
        )
    return judged


def _intervals(evaluation: dict[str, Any]) -> dict[str, tuple[int | None, int | None, int | None]]:
    if not evaluation:
        return {}
    bounds = (evaluation["accuracy_ppm"], evaluation["accuracy_low_ppm"], evaluation["accuracy_high_ppm"])
    intervals: dict[str, tuple[int | None, int | None, int | None]] = dict.fromkeys(
        ("accuracy_lower", "beat_majority", "beat_baseline"), bounds
    )
    worst = min(evaluation["per_class"], key=lambda one: (one["recall_ppm"] or 0, one["n"], one["label"]), default=None)
    if worst is not None:
        intervals["worst_class_recall"] = (worst["recall_ppm"] or 0, worst["recall_low_ppm"], worst["recall_high_ppm"])
    return intervals


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    name: str
    weight: int
    value: int


def axes(score: dict[str, Any]) -> list[Axis]:
    """The five axes of the K-score as the gate's step left them; empty before the gate."""
    return [Axis(name=name, weight=w, value=score[f"{name}_ppm"]) for name, w in WEIGHTS.items()] if score else []


@dataclass(frozen=True, slots=True, kw_only=True)
class Confusion:
    """Counts by truth (rows) and answer (columns; the last is "no answer" where there were such). `matrix` is None for
    more labels than a table can show; `wrong` lists the commonest mistakes either way."""

    labels: list[str]
    columns: list[str]
    matrix: list[list[int]] | None
    wrong: list[dict[str, Any]]


def confusion(evaluation: dict[str, Any]) -> Confusion | None:
    """None before the evaluation, and where answers are no labels."""
    if not evaluation or "fields" in evaluation:
        return None
    labels = [one["label"] for one in evaluation["per_class"]]
    wrong = evaluation["confusions"]
    matrix, columns = None, labels
    if len(labels) <= MAX_MATRIX_LABELS:
        has_silence = any(one["predicted"] == NO_ANSWER for one in wrong)
        columns = [*labels, "no answer"] if has_silence else labels
        at = {label: i for i, label in enumerate(labels)} | {NO_ANSWER: len(labels)}
        matrix = [[0] * len(columns) for _ in labels]
        for one in evaluation["per_class"]:
            matrix[at[one["label"]]][at[one["label"]]] = one["correct"]
        for one in wrong:
            if one["truth"] in at and one["predicted"] in at:
                matrix[at[one["truth"]]][at[one["predicted"]]] += one["count"]
    return Confusion(labels=labels, columns=columns, matrix=matrix, wrong=wrong[:20])


def confusion_chart(evaluation: dict[str, Any]) -> dict[str, Any] | None:
    """The shaded matrix (None of more labels than a table can show) and the commonest mistakes; None as above."""
    measured = confusion(evaluation)
    if measured is None:
        return None
    shaded = None
    if measured.matrix is not None:
        title, corner = "Confusion matrix", "truth / answer"
        shaded = heat(measured.matrix, measured.labels, measured.columns, title=title, corner=corner)
    return {"chart": shaded, "wrong": measured.wrong}
