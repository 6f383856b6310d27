"""A slice whose teacher really collapses: variants of a few sentences, until something makes it write others."""

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from backend.compiles.models import Compile, CompileEvent
from backend.domain.lifecycle import StepName
from backend.drafts.cache import prompts_of
from backend.drafts.models import Draft, Scope
from backend.tenants.isolation import tenant_scope
from tests.compile_factories import fresh, make_compile
from tests.factories import make_tenant
from tests.workers.pipeline_helpers import ScriptedTeacher, candidates, messages, told_apart

TO_VERIFICATION = (StepName.SLICING, StepName.SYNTHESIS, StepName.VERIFICATION)
TO_SELECTION = (*TO_VERIFICATION, StepName.SELECTION)
PART = {"name": "policy_clarification", "share": 1.0, "hint": "Asks what the rules are."}
REFUNDS = ("Do I get a refund for a used lamp?", "Can you refund me without the receipt?")
SHIPPING = ("Is shipping to Norway free?", "How long does shipping by sea take?")
SENTENCES = (*REFUNDS, *SHIPPING)
MARKS = ("", "!", "!!", "?!", " please", " pls", " thanks", " ok", " now", " asap", "...", " :)", " hello", " hi", "??")


def make(on_gap: list[str] | str | None = None, **changes: Any) -> Compile:
    """One slice of 12 candidates of which 6 are to be picked."""
    sampling = {"n_candidates": 12, "k_select": 6} | changes.pop("sampling", {})
    if on_gap is not None:
        sampling["on_gap"] = on_gap
    changes = {"slices": [PART], "examples": {"inline": told_apart(24), "holdout": 0.5}} | changes
    tenant = changes.pop("tenant", None) or make_tenant()
    return make_compile(tenant, sampling=sampling, **changes)


def variants(sentences: tuple[str, ...] = SENTENCES) -> Iterator[str]:
    """Near-duplicates of the sentences, in turn, no two the same."""
    marks = itertools.chain(MARKS, (f" ({i})" for i in itertools.count(1)))
    return (sentence + mark for mark in marks for sentence in sentences)


def collapsed(hot: Callable[[int], list[str]] | None = None, **changes: Any) -> ScriptedTeacher:
    """Variants of four sentences; at a higher temperature what `hot(n)` gives."""
    texts = variants()

    def write(request: Any) -> list[str]:
        if hot is not None and request.temperature > 1.0:
            return hot(request.n)
        return list(itertools.islice(texts, request.n))

    return ScriptedTeacher(write=write, **changes)


def varied() -> Callable[[int], list[str]]:
    """Texts of many kinds."""
    texts = messages()
    return lambda n: list(itertools.islice(texts, n))


def by_slice() -> Callable[[Any], list[str]]:
    """Writes four sentences' variants for the whole slice, and about what its hint says for each half."""
    whole, other = variants(), messages()

    def write(request: Any) -> list[str]:
        is_half = "Slice: policy_clarification_" in request.messages[-1].content
        return list(itertools.islice(other if is_half else whole, request.n))

    return write


def stuck() -> Callable[[Any], list[str]]:
    """Writes variants of four sentences for the whole slice, and of the two that are its own for each half."""
    texts = {"refund": variants(REFUNDS), "shipping": variants(SHIPPING), "": variants()}

    def write(request: Any) -> list[str]:
        prompt = request.messages[-1].content
        about = next((name for name in texts if name and f"Slice: policy_clarification_{name}" in prompt), "")
        return list(itertools.islice(texts[about], request.n))

    return write


def warnings(row: Compile) -> list[dict[str, Any]]:
    return [event.data for event in events(row, "warning")]


def codes(row: Compile) -> Counter[str]:
    return Counter(data["code"] for data in warnings(row))


def events(row: Compile, type: str) -> list[CompileEvent]:
    with tenant_scope(row.tenant_id):
        return list(CompileEvent.objects.filter(compile=row, type=type).order_by("seq"))


def passed(row: Compile) -> list[tuple[str, str]]:
    """(mitigation, reason) of what was passed over, in order."""
    return [(data["mitigation"], data["reason"]) for data in warnings(row) if "reason" in data]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptDraft:
    """A product draft of a compile: what no selection kept, with what it is kept under."""

    row: Draft
    teacher: str
    slice_text: str

    @property
    def candidate_id(self) -> UUID:
        return self.row.candidate_id


def drafts(row: Compile) -> list[KeptDraft]:
    with tenant_scope(row.tenant_id):
        rows = list(Draft.objects.filter(compile_id=row.id, is_kept=False))
        scopes = {scope.id: scope for scope in Scope.objects.filter(tenant_id=row.tenant_id)}
        prompts = prompts_of(row.tenant_id, row.family, [draft.source_id for draft in rows])
    return [
        KeptDraft(row=d, teacher=scopes[d.scope_id].teacher, slice_text=prompts[d.source_id].slice_text) for d in rows
    ]


def check_drafts(row: Compile) -> None:
    """Every reject is a draft of its slice, and of the picked ones none that was not written for this compile."""
    fresh(row)
    dropped = {c.id: c for c in candidates(row, state="dropped")}
    kept = {draft.candidate_id: draft for draft in drafts(row)}
    assert set(kept) == set(dropped)
    with tenant_scope(row.tenant_id):
        names = dict(row.slices.values_list("id", "name"))
        n_marked = Draft.objects.filter(compile_id=row.id, is_kept=True).count()
    assert n_marked == len(candidates(row, state="picked"))
    for id, draft in kept.items():
        assert names[dropped[id].slice_id].replace("_", " ") in draft.slice_text
