"""More candidates for the slices that lose, through the steps on real rows with a scripted teacher."""

from typing import Any

import pytest

from backend.compiles import leases
from backend.compiles.models import Compile
from backend.compiles.reactions import bought_rounds
from backend.domain.lifecycle import StepName
from backend.domain.planning.step_outputs import SelectionOut, SynthesisOut
from backend.drafts.models import Draft
from backend.tenants.isolation import tenant_scope
from tests.compile_factories import LABELS, fresh
from tests.factories import make_tenant
from tests.workers.labeling.test_purchases import ALL, GOLD, TO_SELECTION, make, right_label
from tests.workers.labeling.test_resuming import Killed, bought, live_and_die
from tests.workers.pipeline_helpers import (
    ScriptedTeacher,
    calls,
    candidates,
    check_money,
    slices,
    start,
    step,
    take_over,
    taught_by,
    walk_through,
)
from workers.teachers.protocol import TeacherFailed

pytestmark = pytest.mark.usefixtures("committed_db")
PARTS = [{"name": "money", "share": 0.75}, {"name": "parcels", "share": 0.25}]


def hard_label(text: str) -> str:
    """Of these texts a student that sees what is complained of is wrong about a third."""
    label = right_label(text)
    return LABELS[label == LABELS[0]] if len(text) % 3 == 0 else label


def buying(tenant: Any = None, **changes: Any) -> Compile:
    """Two slices of 18 and 6 candidates, all of which are labelled."""
    parts: dict[str, Any] = {
        "plan": {"kind": "auto", "more_candidates": True},
        "captures": None,
        "sampling": {"n_candidates": 12, "label_samples": 1},
        "slices": PARTS,
    }
    return make(tenant, **(parts | changes))


def written(row: Compile) -> list[dict[str, Any]]:
    return [one for one in step(row, StepName.LABELING).purchases if one.get("kind") == "candidates"]


@pytest.mark.nightly
def test_candidates_are_written_for_slices_that_lose_and_labelled(monkeypatch: pytest.MonkeyPatch) -> None:
    taught_by(monkeypatch, ScriptedTeacher(label=lambda text: [hard_label(text)]))
    row = buying()
    walk_through(start(row), *ALL)
    rounds, parts = written(row), {part.name: part for part in slices(row)}
    assert 0 < len(rounds) <= 3
    assert {name for one in rounds for name in one["slices"]} <= set(parts)
    assert all(one["slices"][name] == parts[name].n_candidates // 2 for one in rounds for name in one["slices"])
    later = [one for one in candidates(row) if one.round > 0]
    assert len(later) == sum(one["n_kept"] for one in rounds) <= 24, "as many again at most"
    assert {(one.state, one.bought_for) for one in later} <= {("trained", "losing"), ("unverified", "losing")}
    open_rounds = {(part.id, number) for part in parts.values() for number in bought_rounds(part)}
    assert {(one.slice_id, one.round) for one in later} <= open_rounds  # type: ignore[attr-defined]  # Django's
    # what the steps before said of candidates is as it was, and the slices count all
    made = [call for call in calls(row) if call.key.startswith("synthesis:")]
    by_step = {name: sum(len(call.choices) for call in made if call.step == name) for name in {c.step for c in made}}
    assert by_step == {"synthesis": 24, "labeling": sum(one["n"] for one in rounds)}
    facts = SynthesisOut.from_json(step(row, StepName.SYNTHESIS).output)
    assert sum(part["n_generated"] for part in facts.slices) == 24
    assert sum(part.n_generated for part in parts.values()) == sum(by_step.values())
    paid = sum(call.cost_microusd for call in made if call.step == "labeling")
    assert sum(one["cost_microusd"] for one in rounds) == paid > 0
    # drafts of the next compile: what selection left, and all that was written after it
    n_before = SelectionOut.from_json(step(row, StepName.SELECTION).output).n_drafts
    with tenant_scope(row.tenant_id):
        assert Draft.objects.filter(compile_id=row.id, is_kept=False).count() == n_before + len(later)
    assert step(row, StepName.LABELING).output["facts"]["purchases"] == [
        {name: value for name, value in one.items() if name not in ("noise", "curve")}
        for one in step(row, StepName.LABELING).purchases
        if "round" in one
    ]
    check_money(row)


@pytest.mark.nightly
def test_without_the_option_nothing_more_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    taught_by(monkeypatch, ScriptedTeacher(label=lambda text: [hard_label(text)]))
    for changes in ({"plan": "auto"}, {"sampling": {"n_candidates": 12, "label_samples": 1, "k_select": 12}}):
        row = buying(**changes)
        walk_through(start(row), *ALL)
        assert written(row) == []
        assert len(candidates(row)) == 24


@pytest.mark.nightly
def test_a_teacher_that_has_nothing_new_is_asked_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    teacher = ScriptedTeacher(label=lambda text: [hard_label(text)])
    fresh_texts, known = teacher._write, list[str]()

    def write(request: Any) -> list[str]:
        if len(known) < 24:
            known.extend(fresh_texts(request))
            return known[-request.n :]
        return known[: request.n]

    teacher._write = write
    taught_by(monkeypatch, teacher)
    row = buying()
    walk_through(start(row), *ALL)
    assert [one["n_kept"] for one in written(row)] == [0] * len(written(row))
    names = [name for one in written(row) for name in one["slices"]]
    assert len(names) == len(set(names)), "each slice once"
    assert len(candidates(row)) == 24
    check_money(row)


@pytest.mark.nightly
def test_a_teacher_that_refuses_more_ends_no_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    teacher = ScriptedTeacher(label=lambda text: [hard_label(text)])
    fresh_texts, n = teacher._write, list[int]()

    def write(request: Any) -> list[str]:
        n.append(request.n)
        if sum(n) > 24:
            raise TeacherFailed("no more", code="teacher_rejected")
        return list(fresh_texts(request))

    teacher._write = write
    taught_by(monkeypatch, teacher)
    row = buying()
    walk_through(start(row), *ALL)
    assert step(row, StepName.LABELING).status == "succeeded"
    assert {one["n_kept"] for one in written(row)} == {0}
    refused = [part for part in slices(row) if any(entry["reaction"] == "refused" for entry in part.reactions)]
    assert {part.name for part in refused} == {name for one in written(row) for name in one["slices"]}
    assert all(part.is_synthesized for part in slices(row))
    check_money(row)


@pytest.mark.nightly
@pytest.mark.timeout(300)
@pytest.mark.parametrize("is_committed", [True, False], ids=["after", "before"])
def test_writing_that_dies_at_every_transaction_ends_as_if_it_had_not(
    monkeypatch: pytest.MonkeyPatch, is_committed: bool
) -> None:
    tenant, real = make_tenant(), leases.fenced_transaction  # whose gold is divided in one way
    off = {"draft_cache": {"enabled": False}}
    taught_by(monkeypatch, _by_seed())
    whole = buying(tenant, **off)
    walk_through(start(whole), *ALL)
    row = buying(tenant, **off)
    run = start(row)
    walk_through(run, *TO_SELECTION)
    for after in range(1, 300):
        live_and_die(monkeypatch, after, is_committed=is_committed)
        try:
            walk_through(run, StepName.LABELING)
            break
        except Killed:
            monkeypatch.setattr(leases, "fenced_transaction", real)
            run = take_over(run, row)
    monkeypatch.setattr(leases, "fenced_transaction", real)
    assert after > 5
    assert written(row)
    assert bought(row) == bought(whole)
    assert [_facts(one) for one in step(row, StepName.LABELING).purchases] == [
        _facts(one) for one in step(whole, StepName.LABELING).purchases
    ]
    applied = [call.key for call in calls(row) if call.state == "applied"]
    assert sorted(applied) == sorted(call.key for call in calls(whole) if call.state == "applied")
    check_money(fresh(row))


def _facts(entry: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in entry.items() if name != "curve"}


def _by_seed() -> ScriptedTeacher:
    """It writes the same texts to whoever asks the same, as a teacher with a seed does."""
    texts: dict[Any, list[str]] = {}
    teacher = ScriptedTeacher(label=lambda text: [hard_label(text)])
    fresh_texts = teacher._write
    teacher._write = lambda request: texts.setdefault((request.seed, request.n), list(fresh_texts(request)))
    return teacher


@pytest.mark.nightly
def test_a_gate_that_is_passed_ends_it_where_the_plan_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    parts: dict[str, Any] = {
        "sampling": {"n_candidates": 24, "label_samples": 1},
        "examples": {"inline": GOLD, "holdout": 0.2},
        "gate": {"min_heldout": 1, "accuracy_lower": 0.5},
    }
    ends = {}
    for stop in ("worth", "gate"):
        taught_by(monkeypatch, ScriptedTeacher(label=lambda text: [right_label(text)]))
        row = buying(plan={"kind": "auto", "stop": stop}, **parts)
        walk_through(start(row), *ALL)
        facts = step(row, StepName.LABELING).output["facts"]
        ends[stop] = (facts["stopped_for"], facts["at_end"]["n_rows"])
    assert ends["gate"][0] == "gate_margin" != ends["worth"][0]
    assert ends["gate"][1] < ends["worth"][1]
