"""The lines that this installation's own rows decide: gold, gate, the teacher's settings, price and budget."""

from collections import Counter
from dataclasses import dataclass
from uuid import UUID

from django.conf import settings
from django.utils import timezone

from backend.compiles.lifecycle.submission import check_embedder, check_teacher, estimate_material, load_material
from backend.domain.errors import InvalidSpec
from backend.domain.extraction.learning import is_extraction
from backend.domain.money.vendor_prices import shipped_prices
from backend.domain.planning.estimates import Estimate
from backend.domain.planning.preflight.extraction_lines import extraction_lines, gold_plan
from backend.domain.planning.preflight.label_lines import label_lines
from backend.domain.planning.preflight.length_lines import length_lines
from backend.domain.planning.preflight.lines import Check, PreflightLine, lines_of, passed_line
from backend.domain.planning.preflight.reading_lines import reading_lines
from backend.domain.planning.preflight.spec_lines import budget_line, gate_lines, gold_line, price_lines
from backend.domain.planning.trials import TrialKind, first_kind
from backend.domain.spec.parsing import Spec


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsCheck:
    """`estimate` is None where the spec has no price. `extracts`: nothing in gold speaks against a span student, or the
    spec asks for no other."""

    lines: tuple[PreflightLine, ...]
    estimate: Estimate | None
    extracts: bool = True


def check_settings(tenant_id: UUID, spec: Spec, *, budget_microusd: int | None = None) -> SettingsCheck:
    """Check a parsed spec in the caller's transaction; the budget is the spec's own, or what a resumed compile has.
    Raises InvalidSpec for data that cannot be read at all."""
    material = load_material(tenant_id, spec)
    heldout = Counter(example.output for example in material.gold.heldout)
    lines = [gold_line(spec, material.gold), *gate_lines(spec, heldout=heldout)]
    lines += label_lines(spec, train=material.gold.train)
    gold = (*material.gold.train, *material.gold.heldout)
    plan = gold_plan(spec, gold)
    extracts = plan is None or is_extraction(plan) or spec.train.kind == "spans"
    lines += extraction_lines(spec, plan)
    if first_kind(spec, extracts=extracts) is TrialKind.CAUSAL or spec.train.kind == "auto":
        lines += length_lines(spec, gold=gold, captures=material.captures)
    texts = [*(example.input for example in gold), *material.captures]
    lines += reading_lines(spec, texts=texts, embedder=spec.embedder or next(iter(settings.KOLM_EMBEDDERS)))
    lines += [*_teacher_lines(tenant_id, spec), *_embedder_lines(spec)]
    try:
        estimate = estimate_material(spec, material)
    except InvalidSpec as refused:
        return SettingsCheck(lines=(*lines, *lines_of(Check.PRICE, refused)), estimate=None, extracts=extracts)
    tables = (settings.KOLM_TEACHER_PRICES, shipped_prices())
    lines += price_lines(spec, estimate, today=timezone.now().date(), tables=tables)
    lines += budget_line(estimate, spec.budget.microusd if budget_microusd is None else budget_microusd)
    return SettingsCheck(lines=tuple(lines), estimate=estimate, extracts=extracts)


def _embedder_lines(spec: Spec) -> list[PreflightLine]:
    """The refusal of an embedder that this installation does not hold; whether one loads is for a worker to try."""
    try:
        check_embedder(spec)
    except InvalidSpec as refused:
        return lines_of(Check.EMBEDDER, refused)
    return []


def _teacher_lines(tenant_id: UUID, spec: Spec) -> list[PreflightLine]:
    try:
        check_teacher(tenant_id, spec)
    except InvalidSpec as refused:
        return lines_of(Check.TEACHER_SETTINGS, refused)
    if spec.teacher.provider != "openai_compatible":
        return [passed_line(Check.TEACHER_SETTINGS, f"The teacher is of the kind {spec.teacher.provider}.")]
    key = f"its key {spec.teacher.api_key} is stored" if spec.teacher.api_key else "it is called without a key"
    return [passed_line(Check.TEACHER_SETTINGS, f"The teacher's address may be called, and {key}.")]
