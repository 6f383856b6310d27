"""The API's answers as frozen values. `raw` is the whole answer, with members that are newer than this client.

Money is in micro-USD (`*_microusd`), shares and scores in parts per million (`*_ppm`), times are aware UTC.
"""

import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from datetime import datetime
from functools import cache
from typing import Any, TypeVar

from .errors import KolmError
from .events import TERMINAL
from .notebook_html import answer_html, card_html, compile_html, output_cells, output_html, row_html, table

Json = Mapping[str, Any]
T = TypeVar("T", bound="Row")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    raw: Json = field(repr=False, compare=False)

    def _repr_html_(self) -> str:
        return row_html(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure(Row):
    code: str
    message: str
    step: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Compile(Row):
    id: str
    name: str
    status: str
    budget_microusd: int
    spent_microusd: int
    family: str = ""
    spec_sha256: str = ""
    estimate: Json | None = None
    reserved_microusd: int = 0
    waste_microusd: int = 0
    k_score_ppm: int | None = None
    evaluation: Json | None = None
    card: Json | None = None
    drafts: Json | None = None
    gate: Json | None = None
    artifact: str | None = None
    ablation: Json | None = None
    queue: Json | None = None
    failure: Failure | None = None
    sequence: int = 0
    spec: Json | None = None
    preflight: Json | None = None
    created_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    last_progress_at: datetime | None = None

    @property
    def has_ended(self) -> bool:
        return self.status in TERMINAL

    @property
    def has_succeeded(self) -> bool:
        return self.status == "succeeded"

    @property
    def k_score(self) -> float | None:
        return None if self.k_score_ppm is None else self.k_score_ppm / 1e6

    def _repr_html_(self) -> str:
        return compile_html(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate(Row):
    steps: Sequence[Json]
    total: Json
    budget_microusd: int
    within_budget: bool
    worst_batch_microusd: int = 0
    teacher_rows: int = 0
    price_version: str = ""
    teacher_price: Json | None = None
    fallback_price: Json | None = None
    batch_price: Json | None = None
    batch_fallback_price: Json | None = None
    batch_window_h: int | None = None
    reward_price: Json | None = None
    judge_price: Json | None = None
    assumptions: Sequence[str] = ()
    warnings: Sequence[str] = ()
    draft_cache: Json | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Step(Row):
    id: str
    name: str
    position: int
    status: str
    attempts: int = 0
    progress: Json | None = None
    queue: Json | None = None
    estimate: Json | None = None
    spent_microusd: int = 0
    waste_microusd: int = 0
    output: Json | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice(Row):
    id: str
    name: str
    share_ppm: int
    label: str | None = None
    n_candidates: int = 0
    n_generated: int = 0
    n_from_drafts: int = 0
    n_rejected: int = 0
    n_duplicates: int = 0
    k_requested: int = 0
    k_actual: int | None = None
    selection: Json | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate(Row):
    id: str
    slice: str
    text: str
    origin: str
    state: str
    reasons: Sequence[str] = ()
    score: float | None = None
    label: str | None = None
    cluster: int | None = None
    agreement_ppm: int | None = None
    cost_microusd: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldoutAnswer(Row):
    """A held-out input with gold and the answer, as texts. `differences` are a json answer's, by field; `spans` the
    places of values in the input, in Unicode code points."""

    row: int
    input: str
    gold: str
    predicted: str
    is_wrong: bool
    mark_ppm: int = 0
    confidence_ppm: int | None = None
    is_unsure: bool | None = None
    is_by_rule: bool = False
    failed_checks: Sequence[str] = ()
    verdict: str | None = None
    differences: Sequence[Json] = ()
    spans: Sequence[Json] = ()

    def _repr_html_(self) -> str:
        return answer_html(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt(Row):
    id: str
    seq: int
    step: str
    payload_sha256: str
    envelope: Json


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageTotal(Row):
    step: str
    sku: str
    unit: str
    billing: str
    quantity: int
    amount_microusd: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact(Row):
    id: str
    name: str
    version: int
    sha256: str
    size_bytes: int
    k_score_ppm: int
    compile: str = ""
    evaluation: Json | None = None
    card: Json | None = None
    manifest: Json | None = None
    created_at: datetime | None = None
    revoked_at: datetime | None = None

    @property
    def k_score(self) -> float:
        return self.k_score_ppm / 1e6

    def _repr_html_(self) -> str:
        return row_html(replace(self, evaluation=None, card=None, manifest=None)) + card_html(self.card)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputField(Row):
    """A field of a span student's answer: its path (/lines/0/sku), where its value stands in the input (Unicode code
    points; None where it was not copied) and how sure it is."""

    path: str
    confidence_ppm: int
    start: int | None = None
    end: int | None = None

    @property
    def confidence(self) -> float:
        return self.confidence_ppm / 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Output(Row):
    """The answer to one input: of a label task `label` and `confidence`, of a json or text task `output`,
    `finish_reason` and `n_tokens`, of a span student `confidence` and `fields` too. `input` is what was asked."""

    latency_us: int
    label: str | None = None
    confidence: float | None = None
    output: str | None = None
    finish_reason: str | None = None
    n_tokens: int | None = None
    rule: int | None = None  # the number of the rule that answered in the model's place
    is_unsure: bool = False  # where the task abstains: the confidence is below its threshold
    fields: Sequence[OutputField] = ()
    input: str | None = None

    def _repr_html_(self) -> str:
        return output_html(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run(Row):
    artifact: str
    outputs: Sequence[Output]
    load_ms: int = 0
    cost_microusd: int = 0

    def _repr_html_(self) -> str:
        return table(("input", "answer", "confidence"), map(output_cells, self.outputs))


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification(Row):
    verdict: str
    exit_code: int
    reasons: Sequence[str] = ()
    keyid: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft(Row):
    id: str
    family: str
    state: str
    text: str | None = None
    teacher: str = ""
    n_shown: int = 0
    n_accepted: int = 0
    compile: str = ""
    created_at: datetime | None = None
    expires_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload(Row):
    id: str
    purpose: str
    sha256: str
    size_bytes: int
    n_rows: int
    name: str | None = None
    created_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePoint(Row):
    """A share of right answers in ppm after `n` examples. An expectation has a 90 % interval, a measured point none."""

    n: int
    accuracy_ppm: int
    accuracy_low_ppm: int | None = None
    accuracy_high_ppm: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningCurve(Row):
    """`status` is "pending", "measured" or "not_possible", for `reason`. `expected` is of all the upload's `n_train`
    examples, of twice and of four times as many."""

    upload: str
    status: str
    reason: str | None = None
    n_train: int | None = None
    n_measured: int | None = None
    n_labels: int | None = None
    points: list[CurvePoint] = field(default_factory=list)
    expected: list[CurvePoint] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey(Row):
    """`secret` is there once, in the answer that made the key."""

    id: str
    name: str
    live: bool
    prefix: str
    last4: str
    scopes: Sequence[str] = ()
    tags: Json | None = None
    created_at: datetime | None = None
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    last_used_at: datetime | None = None
    secret: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TeacherKey(Row):
    id: str
    name: str
    last4: str
    created_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TeacherKeyTest(Row):
    """The verdict of a provider on a stored key; `detail` is its answer in a sentence."""

    id: str
    passed: bool
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant(Row):
    id: str
    name: str
    created_at: datetime | None = None


def build(cls: type[T], row: Any) -> T:
    """The value of an answer. Raises KolmError where the answer lacks a member that the class needs."""
    if not isinstance(row, dict):
        raise KolmError(f"The API's answer is not the object that a {cls.__name__} is.")
    values: dict[str, Any] = {"raw": row}
    for name, is_needed, convert in _members(cls):  # type: ignore[arg-type]
        if row.get(name) is not None:
            values[name] = convert(row[name])
        elif is_needed:
            raise KolmError(f"The API's answer has no {name!r}, which a {cls.__name__} needs; is the client too old?")
    return cls(**values)


@cache
def _members(cls: Any) -> tuple[tuple[str, bool, Callable[[Any], Any]], ...]:
    """(member, whether it must be there, how it is read) of a class."""
    hints = typing.get_type_hints(cls)
    return tuple(
        (each.name, each.default is MISSING and each.default_factory is MISSING, _reader(hints[each.name]))
        for each in fields(cls)
        if each.name != "raw"
    )


def _reader(hint: Any) -> Callable[[Any], Any]:
    options = [option for option in typing.get_args(hint) if option is not type(None)] or [hint]
    kind = options[0]
    if typing.get_origin(hint) is Sequence:
        if isinstance(kind, type) and issubclass(kind, Row):
            return lambda value: tuple(build(kind, each) for each in value)
        return tuple
    if kind is datetime:
        return datetime.fromisoformat
    if isinstance(kind, type) and issubclass(kind, Row):
        return lambda value: build(kind, value)
    return lambda value: value
