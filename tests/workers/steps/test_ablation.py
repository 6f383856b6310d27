"""An ablation takes candidates, scores and labels over, bit for bit and for nothing, and keeps without selection."""

from collections import Counter
from typing import Any

import pytest

from backend.artifacts.models import Receipt
from backend.blobs import get_jsonl
from backend.compiles.lifecycle import ablations
from backend.compiles.models import Compile
from backend.compiles.states import LABELED_STATES
from backend.domain.lifecycle import StepName
from backend.domain.planning.ablations import Arm
from backend.drafts.models import Draft
from backend.tenants.isolation import tenant_scope
from tests.compile_factories import LABELS, make_compile
from tests.factories import make_tenant
from tests.profiles import one_in
from tests.workers.collapsing_teacher import by_slice, make
from tests.workers.measured_helpers import TO_LABELING, measured, walked_and_measured
from tests.workers.pipeline_helpers import (
    ScriptedTeacher,
    calls,
    candidates,
    check_money,
    messages,
    slices,
    start,
    step,
    take_over,
    taught_by,
    told_apart,
)
from workers.pipeline import STEP_FUNCTIONS, steps_of
from workers.step.durable import Canceled, CompileRun, begin_step
from workers.steps import ablation

pytestmark = pytest.mark.usefixtures("committed_db")
COPIED = ("text", "text_key", "origin", "round", "reasons", "logprob", "n_tokens", "score", "signal")
SPEC = {"examples": {"inline": told_apart(24), "holdout": 0.5}, "sampling": {"n_candidates": 12, "label_samples": 3}}


@pytest.fixture
def teacher(monkeypatch: pytest.MonkeyPatch) -> ScriptedTeacher:
    return taught_by(monkeypatch, ScriptedTeacher())


def source_of(**changes: Any) -> Compile:
    row = make_compile(make_tenant(), **(SPEC | changes))
    return walked_and_measured(start(row), row)


def arm_of(source: Compile, arm: Arm) -> Compile:
    with tenant_scope(source.tenant_id):
        return ablations.start(source, arm, budget_microusd=None, api_key_id=None)


def walk_arm(run: CompileRun, row: Compile, *steps: StepName) -> None:
    for name in steps:
        begin_step(run, name)
        steps_of(row)[name](run)


def labeled(row: Compile) -> dict[str, Any]:
    rows = candidates(row, state__in=LABELED_STATES)
    return {c.text_key: (c.label, c.votes, c.agreement_ppm, c.state == "unverified") for c in rows}


def test_only_the_first_four_steps_of_an_ablation_are_other_than_usual(teacher: ScriptedTeacher) -> None:
    source = source_of()
    arm = arm_of(source, Arm.ALL)
    assert steps_of(source) == STEP_FUNCTIONS
    changed = {name for name, stage in steps_of(arm).items() if STEP_FUNCTIONS[name] is not stage}
    assert changed == set(TO_LABELING[:4])


@pytest.mark.parametrize("arm", [Arm.ALL, Arm.RANDOM])
def test_the_candidates_are_the_sources_to_the_last_bit_and_cost_nothing(teacher: ScriptedTeacher, arm: Arm) -> None:
    source = source_of(verifiers=[{"kind": "length", "min_chars": 46, "max_chars": 300, "gate": True}])
    row = arm_of(source, arm)
    n_asked = len(teacher.asked)
    walk_arm(start(row), row, *TO_LABELING[:4])
    assert len(teacher.asked) == n_asked
    assert calls(row) == []
    theirs, ours = candidates(source), candidates(row)
    assert any(c.state == "rejected" for c in theirs)
    for before, after in zip(theirs, ours, strict=True):
        assert [getattr(before, name) for name in COPIED] == [getattr(after, name) for name in COPIED]
        assert before.embedding is None or bytes(before.embedding) == bytes(after.embedding)
        assert (before.state == "rejected") == (after.state == "rejected")
        assert after.cost_microusd == 0
    check_money(row)
    assert row.spent_microusd == 0


def test_the_held_out_rows_are_the_sources(teacher: ScriptedTeacher) -> None:
    source = source_of()
    row = arm_of(source, Arm.RANDOM)
    walk_arm(start(row), row, StepName.SLICING)
    digests = [step(r, StepName.SLICING).output["digests"] for r in (source, row)]
    assert digests[0] == digests[1]


@pytest.mark.nightly
def test_arm_all_labels_every_valid_candidate_and_trains_on_every_pair(teacher: ScriptedTeacher) -> None:
    source = source_of()
    row = arm_of(source, Arm.ALL)
    walk_arm(start(row), row, *TO_LABELING)
    valid = {c.text_key for c in candidates(source) if c.state != "rejected"}
    assert set(labeled(row)) == valid
    assert {part.k_actual for part in slices(row)} == {12}
    facts = step(row, StepName.LABELING).output["facts"]
    assert facts["n_labeled"] + facts["n_unverified"] == len(valid)
    before = step(source, StepName.LABELING).output["facts"]
    assert facts["n_synthetic_pairs"] == facts["n_labeled"] > before["n_labeled"] == before["n_synthetic_pairs"]


def test_arm_random_draws_as_many_of_each_slice_as_were_selected_by_its_seed(teacher: ScriptedTeacher) -> None:
    source = source_of()
    drawn = []
    for _ in range(2):
        row = arm_of(source, Arm.RANDOM)
        walk_arm(start(row), row, *TO_LABELING)
        assert [p.k_actual for p in slices(row)] == [p.k_actual for p in slices(source)]
        assert len(labeled(row)) == len(labeled(source))
        drawn.append(set(labeled(row)))
    assert drawn[0] == drawn[1]
    assert drawn[0] != set(labeled(source))


def test_labels_that_were_bought_are_not_bought_again_and_are_the_same(teacher: ScriptedTeacher) -> None:
    source = source_of()
    before = labeled(source)
    row = arm_of(source, Arm.ALL)
    n_asked = len(teacher.asked)
    walk_arm(start(row), row, *TO_LABELING)
    after = labeled(row)
    assert {key: after[key] for key in before} == before
    known = {c.text for c in candidates(source) if c.text_key in before}
    assert known & {request.item for request in teacher.asked[n_asked:]} == set()
    assert len(teacher.asked) - n_asked == len(after) - len(before)
    facts = step(row, StepName.SELECTION).output["facts"]
    assert facts["n_labels_reused"] == len(before)
    assert facts["reused_label_cost_microusd"] == step(source, StepName.LABELING).spent_microusd
    check_money(row)


@pytest.mark.nightly
def test_texts_without_agreement_stay_so_and_are_not_asked_about_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The teacher agrees with itself about every third text or so; about none, the compile would end."""

    def label(text: str) -> list[str]:
        return [LABELS[0], LABELS[0] if sum(text.encode()) % 3 == 0 else LABELS[1], "?"]

    teacher = taught_by(monkeypatch, ScriptedTeacher(label=label))
    source = source_of()
    unsure = {text for text, (*_, is_unverified) in labeled(source).items() if is_unverified}
    assert 0 < len(unsure) < len(labeled(source))
    row = arm_of(source, Arm.ALL)
    n_asked = len(teacher.asked)
    walk_arm(start(row), row, *TO_LABELING)
    assert len(teacher.asked) - n_asked == len(labeled(row)) - len(labeled(source))
    assert unsure <= {text for text, (*_, is_unverified) in labeled(row).items() if is_unverified}


@pytest.mark.nightly
def test_captures_are_ablated_too(teacher: ScriptedTeacher) -> None:
    texts = [text for text, _ in zip(messages(), range(20), strict=False)]
    gold = told_apart(24)
    source = source_of(captures={"inline": [*texts, gold[0]["input"]]})
    row = arm_of(source, Arm.ALL)
    walk_arm(start(row), row, *TO_LABELING)
    assert {c.text for c in candidates(row) if c.state != "rejected"} == set(texts)
    assert len(labeled(row)) == 20


@pytest.mark.nightly
@pytest.mark.parametrize("on_gap", [["split_slice", "drop_k"], ["drop_k"]])
def test_what_the_source_made_of_a_gap_is_taken_over_and_the_arm_does_not_react_to_it(
    monkeypatch: pytest.MonkeyPatch, on_gap: list[str]
) -> None:
    """Halves with their candidates, and a K that was dropped: random labels as many as were labelled in the end."""
    taught_by(monkeypatch, ScriptedTeacher(write=by_slice()))
    source = make(on_gap)
    source = walked_and_measured(start(source), source)
    drawn, whole = arm_of(source, Arm.RANDOM), arm_of(source, Arm.ALL)
    for row in (drawn, whole):
        walk_arm(start(row), row, *TO_LABELING)
        assert [(p.name, p.share_ppm, p.reactions) for p in slices(row)] == [
            (p.name, p.share_ppm, p.reactions) for p in slices(source)
        ]
        homes = {p.id: p.name for r in (source, row) for p in slices(r)}
        assert {c.text: homes[c.slice_id] for c in candidates(row)} == {
            c.text: homes[c.slice_id] for c in candidates(source)
        }
    assert [p.k_actual for p in slices(drawn)] == [p.k_actual for p in slices(source)]
    assert sum(p.k_actual for p in slices(source)) < 12
    assert len(labeled(whole)) == sum(c.state != "rejected" for c in candidates(source))


@pytest.mark.nightly
def test_nothing_of_an_arm_becomes_a_draft(teacher: ScriptedTeacher) -> None:
    source = source_of()
    row = arm_of(source, Arm.RANDOM)
    walk_arm(start(row), row, *TO_LABELING)
    assert candidates(row, state="dropped")
    with tenant_scope(row.tenant_id):
        assert Draft.objects.filter(compile_id=source.id).exists()
        assert not Draft.objects.filter(compile_id=row.id).exists()


@pytest.mark.nightly
def test_the_receipts_name_the_source_and_what_it_put_out(teacher: ScriptedTeacher) -> None:
    source = source_of()
    row = arm_of(source, Arm.RANDOM)
    walk_arm(start(row), row, *TO_LABELING)
    with tenant_scope(row.tenant_id):
        assert Receipt.objects.filter(compile_id=row.id).count() == len(TO_LABELING)
    for name in TO_LABELING[:4]:
        assert step(row, name).output["facts"]["copied_from"].startswith("cmp_")
    # nothing was added to the source's pool after its synthesis: the digests meet
    for name in (StepName.SYNTHESIS,):
        assert step(row, name).output["digests"] == step(source, name).output["digests"]


@pytest.mark.nightly
@pytest.mark.parametrize("after", one_in(3, range(5)))
def test_a_worker_that_takes_over_in_the_middle_comes_to_the_same(
    teacher: ScriptedTeacher, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    """The first worker dies in the step, its work half done and not finished."""
    source = source_of()
    plain, broken = arm_of(source, Arm.ALL), arm_of(source, Arm.ALL)
    walk_arm(start(plain), plain, *TO_LABELING)
    monkeypatch.setattr(ablation, "COPIED_AT_ONCE", 5)
    run = start(broken)
    for at, name in enumerate(TO_LABELING):
        if at == after:
            with monkeypatch.context() as patch:
                patch.setattr(ablation, "finish_step", die)
                patch.setattr("workers.steps.labeling.finish_step", die)
                with pytest.raises(Dies):
                    walk_arm(run, broken, name)
            run = take_over(run, broken)
        walk_arm(run, broken, name)
    assert labeled(broken) == labeled(plain)
    digests = [
        get_jsonl(row.tenant_id, step(row, StepName.LABELING).output["digests"]["dataset"]) for row in (plain, broken)
    ]
    assert digests[0] == digests[1]
    assert Counter(c.text_key for c in candidates(broken)) == Counter(c.text_key for c in candidates(plain))
    check_money(broken)


class Dies(Exception):
    pass


def die(*_: Any) -> None:
    raise Dies


def test_a_cancellation_is_heard_between_two_batches_of_copies(
    teacher: ScriptedTeacher, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = source_of()
    row = arm_of(source, Arm.ALL)
    monkeypatch.setattr(ablation, "COPIED_AT_ONCE", 5)
    run = start(row)
    walk_arm(run, row, StepName.SLICING)
    run.stop.is_canceled = True
    with pytest.raises(Canceled):
        walk_arm(run, row, StepName.SYNTHESIS)


def test_what_selection_was_worth_is_counted_on_the_same_rows(teacher: ScriptedTeacher) -> None:
    source = source_of()
    row = arm_of(source, Arm.ALL)
    with tenant_scope(row.tenant_id):
        assert ablations.comparison(source, row) is None
    walk_arm(start(row), row, *TO_LABELING)
    right = {gold["input"]: gold["output"] for gold in told_apart(24)}
    row = measured(row, lambda text: right[text])  # the source answered LABELS[0] to everything
    with tenant_scope(row.tenant_id):
        found = ablations.comparison(source, row)
        costs = [ablations.label_costs(r) for r in (source, row)]
    assert found is not None
    n_heldout = found.paired.n
    n_first = found.selected.correct
    assert (found.arm.correct, found.paired.first, found.paired.second) == (n_heldout, 0, n_heldout - n_first)
    assert found.selected.n_labels == len(labeled(source))
    assert (found.arm.n_labels, found.arm.n_labels_reused) == (len(labeled(row)), len(labeled(source)))
    assert found.selected.label_cost_microusd == step(source, StepName.LABELING).spent_microusd
    # as if the arm had bought every label itself
    assert found.arm.label_cost_microusd == sum(costs[0].values()) + sum(costs[1].values())
    per_text = found.selected.label_cost_microusd / found.selected.n_labels
    assert found.arm.label_cost_microusd == pytest.approx(per_text * found.arm.n_labels)
