"""`split_slice`: a slice that holds two groups of texts becomes two, each with its own hint."""

import itertools
from typing import Any

import pytest

from backend.compiles.models import Compile, Slice
from backend.compiles.uploads.rows import UploadPurpose
from backend.domain.lifecycle import StepName
from tests.compile_factories import make_upload, public_id
from tests.factories import make_tenant
from tests.profiles import one_in
from tests.workers.collapsing_teacher import (
    PART,
    REFUNDS,
    SENTENCES,
    SHIPPING,
    TO_SELECTION,
    TO_VERIFICATION,
    by_slice,
    check_drafts,
    codes,
    drafts,
    events,
    make,
    passed,
    stuck,
    variants,
    warnings,
)
from tests.workers.pipeline_helpers import (
    ScriptedTeacher,
    calls,
    candidates,
    check_money,
    halves_json,
    is_about_halves,
    slices,
    start,
    step,
    take_over,
    taught_by,
    walk_through,
)
from workers.candidates import generation
from workers.gap import splitting
from workers.steps import selection
from workers.steps.selection import run_selection
from workers.teachers.protocol import TeacherFailed

pytestmark = pytest.mark.usefixtures("committed_db")
SPLIT = ["split_slice", "drop_k"]
NAMES = ["policy_clarification", "policy_clarification_refund", "policy_clarification_shipping"]


class Killed(BaseException):
    """Nobody catches it: the process is gone."""


def parts_of(row: Compile) -> tuple[Slice, list[Slice]]:
    parent, *halves = slices(row)
    return parent, halves


def test_the_teacher_names_two_slices_and_each_gets_its_own_candidates(monkeypatch):
    teacher = taught_by(monkeypatch, ScriptedTeacher(write=by_slice()))
    row = make(SPLIT)
    walk_through(start(row), *TO_SELECTION)
    parent, halves = parts_of(row)
    assert [s.name for s in slices(row)] == NAMES
    assert (parent.k_requested, parent.k_actual, parent.share_ppm) == (6, 0, 0)
    assert parent.selection["mitigation"] == "split"
    assert [h.hint for h in halves] == ["Asks what the rules are. Money back.", "Asks what the rules are. Where it is."]
    for column, whole in (("share_ppm", 1_000_000), ("n_candidates", 12), ("k_requested", 6)):
        assert sum(getattr(h, column) for h in halves) == whole, "divided, nothing lost"
    for half in halves:
        assert half.n_generated == half.n_candidates, "a round of its own, of its N"
        mine = candidates(row, slice=half)
        taken_over = [c for c in mine if c.round == 0]
        assert len(taken_over) == 6
        assert half.k_actual == half.k_requested == sum(c.state == "picked" for c in mine)
        assert all(c.score is not None for c in mine if c.state != "rejected")
    homes = {c.text: c.slice_id for c in candidates(row, round=0)}
    assert len({homes[text] for text in homes if text.startswith(REFUNDS)}) == 1
    assert len({homes[text] for text in homes if text.startswith(SHIPPING)}) == 1
    (asked,) = [r for r in teacher.asked if is_about_halves(r)]
    assert all(s in asked.messages[-1].content for s in ("Slice: policy_clarification", *SENTENCES[::2]))
    assert {c.step for c in calls(row) if c.key.startswith("selection:split")} == {StepName.SELECTION}
    assert codes(row)["slice_split"] == 1
    check_drafts(row)
    check_money(row)
    paid = step(row, StepName.SELECTION)
    assert 0 < paid.spent_microusd <= paid.estimate["high_microusd"]


def test_the_split_is_recorded_where_it_is_read(monkeypatch):
    taught_by(monkeypatch, ScriptedTeacher(write=by_slice()))
    row = make(SPLIT)
    walk_through(start(row), *TO_SELECTION)
    parent, halves = parts_of(row)
    (said,) = [r for r in parent.reactions if r["reaction"] == "split_slice"]
    assert (said["into"], said["named_by"], said["share_ppm"]) == (NAMES[1:], "teacher", 1_000_000)
    assert [r["from"] for h in halves for r in h.reactions if r["reaction"] == "split_off"] == [NAMES[0]] * 2
    (warning,) = [w for w in warnings(row) if w["code"] == "slice_split"]
    assert (warning["slice"], warning["into"]) == (NAMES[0], NAMES[1:])
    reports = {e.data["slice"]: e.data for e in events(row, "selection.report")}
    assert list(reports) == NAMES
    assert (reports[NAMES[0]]["mitigation"], reports[NAMES[0]]["k_actual"]) == ("split", 0)
    facts = {f["name"]: f for f in step(row, StepName.SELECTION).output["facts"]["slices"]}
    assert [facts[name]["k_actual"] for name in NAMES] == [0, 3, 3]


def test_labels_are_asked_of_the_picks_of_both_halves(monkeypatch):
    teacher = taught_by(monkeypatch, ScriptedTeacher(write=by_slice()))
    row = make(SPLIT)
    walk_through(start(row), *TO_SELECTION, StepName.LABELING)
    labeled = candidates(row, state__in=["trained", "left_out", "unverified"])
    assert len(labeled) == 6
    assert {r.item for r in teacher.asked if r.item is not None} == {c.text for c in labeled}
    check_money(row)


def test_sizes_of_halves_follow_the_groups(monkeypatch):
    """Nine texts about refunds, three about shipping."""
    texts = itertools.chain(itertools.islice(variants(REFUNDS), 9), itertools.islice(variants(SHIPPING[:1]), 3))

    def write(request: Any) -> list[str]:
        return list(itertools.islice(texts, request.n))

    taught_by(monkeypatch, ScriptedTeacher(write=write))
    row = make(SPLIT, sampling={"k_select": 4})
    run = start(row)
    walk_through(run, *TO_VERIFICATION)
    monkeypatch.setattr(selection, "add_round", lambda run, pool, *_: setattr(pool, "is_synthesized", True))
    walk_through(run, StepName.SELECTION)
    _, halves = parts_of(row)
    assert [h.share_ppm for h in halves] == [750_000, 250_000]
    assert [(h.n_candidates, h.k_requested) for h in halves] == [(9, 3), (3, 1)]
    assert [h.k_actual for h in halves] == [2, 1], "the larger half is degenerate still, and is not split again"
    assert ("split_slice", "already_split") in passed(row)


@pytest.mark.nightly
def test_a_half_is_resynthesised_before_its_k_drops_but_never_split_again(monkeypatch):
    taught_by(monkeypatch, ScriptedTeacher(write=stuck()))
    row = make(["split_slice", "resynthesize", "drop_k"])
    walk_through(start(row), *TO_SELECTION)
    parent, halves = parts_of(row)
    assert len(halves) == 2
    assert passed(row) == [("split_slice", "already_split"), ("resynthesize", "stopped_growing")] * 2
    for half in halves:
        assert (half.selection["mitigation"], half.selection["resynth_rounds"], half.k_actual) == ("drop_k", 1, 2)
    assert not any(r["reaction"] == "resynthesize" for r in parent.reactions)
    check_drafts(row)
    check_money(row)


@pytest.mark.nightly
def test_rounds_of_the_slice_count_for_its_halves(monkeypatch):
    """Resynthesis first: its one round is used, the halves get none, and hot stays hot."""
    teacher = taught_by(monkeypatch, ScriptedTeacher(write=stuck()))
    row = make(["resynthesize", "split_slice", "drop_k"], sampling={"resynthesis_rounds": 1})
    walk_through(start(row), *TO_SELECTION)
    _, halves = parts_of(row)
    assert passed(row) == [
        ("resynthesize", "rounds_used"),
        *[("resynthesize", "rounds_used"), ("split_slice", "already_split")] * 2,
    ]
    assert [h.selection["resynth_rounds"] for h in halves] == [0, 0], "of their own"
    assert [h.temperature_ppm for h in halves] == [1_300_000] * 2
    rounds_of = {c.id: c.round for c in candidates(row, state="dropped")}
    for draft in drafts(row):
        assert draft.teacher.endswith("=1.00" if rounds_of[draft.candidate_id] == 0 else "=1.30")
    assert {round(r.temperature, 1) for r in teacher.asked} == {0.0, 1.0, 1.3}
    check_drafts(row)


def test_a_pool_of_one_group_is_not_split(monkeypatch):
    texts = variants(("Do I get a refund for a used lamp?",))
    taught_by(monkeypatch, ScriptedTeacher(write=lambda request: list(itertools.islice(texts, request.n))))
    row = make(SPLIT, sampling={"n_candidates": 3, "k_select": 2})  # too small for synthesis to call it collapsed
    walk_through(start(row), *TO_SELECTION)
    assert passed(row) == [("split_slice", "one_group")]
    assert [(s.k_requested, s.k_actual) for s in slices(row)] == [(2, 1)]


def test_exemplars_go_with_the_half_they_are_like(monkeypatch):
    taught_by(monkeypatch, ScriptedTeacher(write=by_slice()))
    shown = ["I want my refund for the lamp", "what does shipping overseas cost"]
    row = make(SPLIT, slices=[PART | {"exemplars": shown}])
    walk_through(start(row), *TO_SELECTION)
    _, halves = parts_of(row)
    assert [h.exemplars for h in halves] == [shown[:1], shown[1:]]


UNUSABLE = {  # the rest of what is refused: tests/backend/domain/selection/test_slice_split.py
    "prose": "I would call them refund and shipping.",
    "controls": halves_json("re\x00fund", "ship\x1b[31mping"),
    "10,000 characters": halves_json("x" * 10_000, "shipping"),
    "a name of the spec": halves_json("policy_clarification_taken", "shipping"),
}


@pytest.mark.parametrize("answer", UNUSABLE.values(), ids=UNUSABLE)
def test_an_answer_of_no_use_is_not_used_and_their_own_terms_name_the_halves(monkeypatch, answer):
    taught_by(monkeypatch, ScriptedTeacher(write=by_slice(), name=lambda request: answer))
    other = {"name": "policy_clarification_TAKEN", "share": 0.5, "hint": "Parcels."}
    row = make(SPLIT, slices=[PART | {"share": 0.5}, other])
    run = start(row)
    walk_through(run, *TO_VERIFICATION)
    walk_through(run, StepName.SELECTION)
    halves = [s for s in slices(row) if any(r.get("from") == PART["name"] for r in s.reactions)]
    assert [h.name for h in halves] == NAMES[1:], "refund and shipping are the halves' own terms"
    assert [h.hint for h in halves] == [
        "Asks what the rules are. Above all: refund, can, for.",
        "Asks what the rules are. Above all: shipping, does, free.",
    ]
    assert slices(row)[0].reactions[-1]["named_by"] == "terms"
    check_money(row)


@pytest.mark.parametrize("answer", [TeacherFailed("400", code="teacher_rejected"), None], ids=["refuses", "replay"])
def test_a_teacher_that_cannot_be_asked_leaves_the_naming_to_their_terms(monkeypatch, answer):
    def refuse(request: Any) -> str:
        raise answer or AssertionError("a recording is not asked")

    taught_by(monkeypatch, ScriptedTeacher(write=by_slice(), name=refuse))
    if answer is None:
        tenant = make_tenant()
        recording = public_id(make_upload(tenant, purpose=UploadPurpose.RECORDING))
        teacher = {"provider": "replay", "model": "replay", "recording": recording}
        price = {"input_usd_per_mtok": 0.1, "output_usd_per_mtok": 0.4}
        row = make(SPLIT, tenant=tenant, teacher=teacher | {"price": price})
    else:
        row = make(SPLIT)
    walk_through(start(row), *TO_SELECTION)
    assert [s.name for s in slices(row)] == NAMES
    check_money(row)


def test_a_teacher_that_is_away_is_asked_again(monkeypatch):
    def away(request: Any) -> str:
        raise TeacherFailed("connection refused", code="teacher_unreachable")

    teacher = taught_by(monkeypatch, ScriptedTeacher(write=by_slice(), name=away))
    row = make(SPLIT)
    run = start(row)
    walk_through(run, *TO_VERIFICATION)
    with pytest.raises(TeacherFailed):
        run_selection(run)
    assert [s.name for s in slices(row)] == NAMES[:1]
    teacher._name = lambda request: halves_json("refund", "shipping")
    walk_through(take_over(run, row), StepName.SELECTION)
    assert [s.name for s in slices(row)] == NAMES


@pytest.mark.nightly
def test_a_long_name_is_shortened_to_fit_and_the_halves_are_told_apart(monkeypatch):
    answer = halves_json("what it costs to send things back to us", "how long a parcel is under way to you")
    taught_by(monkeypatch, ScriptedTeacher(write=by_slice(), name=lambda request: answer))
    row = make(SPLIT, slices=[PART | {"name": "n" * 80, "hint": "h" * 1000}])
    walk_through(start(row), *TO_SELECTION)
    _, halves = parts_of(row)
    assert [len(h.name) for h in halves] == [80, 80]
    assert [len(h.hint) for h in halves] == [1000, 1000]
    assert all(h.hint.endswith(("Money back.", "Where it is.")) for h in halves)


@pytest.mark.nightly
def test_two_slices_of_a_spec_are_each_split(monkeypatch):
    written = {
        "policy": variants(REFUNDS + SHIPPING),
        "other": variants(("My lamp hums.", "Who won?", "Hi there", "!")),
    }

    def write(request: Any) -> list[str]:
        name = "policy" if "Slice: policy" in request.messages[-1].content else "other"
        return list(itertools.islice(written[name], request.n))

    taught_by(monkeypatch, ScriptedTeacher(write=write, name=lambda request: halves_json("one", "two")))
    row = make(SPLIT, slices=[PART | {"name": name, "share": 0.5} for name in ("policy", "other")])
    walk_through(start(row), *TO_SELECTION)
    assert [s.name for s in slices(row)] == ["policy", "other", "policy_one", "policy_two", "other_one", "other_two"]
    assert sum(s.share_ppm for s in slices(row)) == 1_000_000
    check_drafts(row)


TWICE = [  # by each half
    (selection, "slice_text"),
    (generation, "fill_round"),
    (generation, "embed_slice"),
    (selection, "score_slice"),
    (selection, "_save"),
    (selection, "keep_drafts"),
]
ONCE = [(splitting, "call_batch"), (splitting, "_make_halves"), (splitting, "emit_report"), (selection, "_summary")]
DEATHS = [(place, 1, is_after) for place in ONCE for is_after in (False, True)]
DEATHS += [(place, nth, is_after) for place in TWICE for nth, is_after in ((1, False), (2, True))]
COLUMNS = ("name", "hint", "share_ppm", "n_candidates", "k_requested", "k_actual", "reactions", "selection")


@pytest.mark.parametrize(("place", "nth", "is_after"), one_in(3, DEATHS), ids=[f"{p[1]}-{n}-{a}" for p, n, a in DEATHS])
def test_whoever_dies_where_the_halves_and_their_picks_are_the_same(monkeypatch, undisturbed, place, nth, is_after):
    taught_by(monkeypatch, ScriptedTeacher(write=by_slice()))
    row = make(SPLIT)
    run = start(row)
    walk_through(run, *TO_VERIFICATION)
    real, n = getattr(*place), itertools.count(1)

    def die(*args: Any, **options: Any) -> Any:
        is_due = next(n) == nth
        result = real(*args, **options) if is_after or not is_due else None
        if is_due:
            raise Killed
        return result

    with monkeypatch.context() as patch:
        patch.setattr(*place, die)
        with pytest.raises(Killed):
            run_selection(run)
    walk_through(take_over(run, row), StepName.SELECTION)
    assert left_by(row) == undisturbed
    check_drafts(row)
    check_money(row)


def left_by(row: Compile) -> dict[str, Any]:
    left: dict[str, Any] = {column: [getattr(s, column) for s in slices(row)] for column in COLUMNS}
    left |= {"codes": codes(row), "reports": [e.data for e in events(row, "selection.report")]}
    return left | {"output": step(row, StepName.SELECTION).output}


@pytest.fixture
def undisturbed(monkeypatch: pytest.MonkeyPatch, whole: dict[str, Any]) -> dict[str, Any]:
    """What a compile leaves that nobody kills; walked once for all tests."""
    if not whole:
        row = make(SPLIT)
        with monkeypatch.context() as patch:
            taught_by(patch, ScriptedTeacher(write=by_slice()))
            walk_through(start(row), *TO_SELECTION)
        whole |= left_by(row)
    return whole


@pytest.fixture(scope="module")
def whole() -> dict[str, Any]:
    return {}
