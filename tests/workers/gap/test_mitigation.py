"""`on_gap`, tried in order on a slice whose teacher really collapses."""

import itertools
from typing import Any

import pytest

from backend.compiles.models import Compile
from backend.domain.errors import CustomerError
from backend.domain.lifecycle import StepName
from backend.tenants.isolation import tenant_scope
from tests.compile_factories import change, fresh
from tests.profiles import one_in
from tests.workers.collapsing_teacher import (
    SENTENCES,
    TO_SELECTION,
    TO_VERIFICATION,
    check_drafts,
    codes,
    collapsed,
    drafts,
    events,
    make,
    passed,
    variants,
    varied,
    warnings,
)
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
from workers.candidates import generation
from workers.candidates.headroom import worst_round
from workers.gap import mitigation
from workers.steps import selection
from workers.steps.selection import run_selection
from workers.teachers.protocol import Completion, TeacherFailed, Usage

pytestmark = pytest.mark.usefixtures("committed_db")


class Killed(BaseException):
    """Nobody catches it: the process is gone."""


def select_on(row: Compile) -> Any:
    """The slice after selection."""
    walk_through(start(row), *TO_SELECTION)
    (pool,) = slices(row)
    return pool


def receipt_of(row: Compile) -> dict[str, Any]:
    (facts,) = step(row, StepName.SELECTION).output["facts"]["slices"]
    return facts


def test_a_pool_that_becomes_varied_when_hot_gets_its_k(monkeypatch):
    teacher = taught_by(monkeypatch, collapsed(varied()))
    row = make()
    pool = select_on(row)
    assert (pool.k_requested, pool.k_actual) == (6, 6)
    assert (pool.selection["mitigation"], pool.selection["resynth_rounds"]) == ("resynthesize", 1)
    assert pool.selection["n_groups"] >= 6
    assert [r["reaction"] for r in pool.reactions] == ["resynthesize"]
    assert pool.n_generated == 12 + 6, "N' > N"
    assert {round(r.temperature, 1) for r in teacher.asked} == {1.0, 1.3}
    check_drafts(row)
    assert {d.teacher.rpartition("=")[2] for d in drafts(row)} == {"1.00", "1.30"}
    check_money(row)
    paid = step(row, StepName.SELECTION)
    assert 0 < paid.spent_microusd <= paid.estimate["high_microusd"]


def test_a_pool_that_gains_nothing_is_asked_once_more_and_then_k_drops_to_its_groups(monkeypatch):
    taught_by(monkeypatch, collapsed())
    row = make()
    pool = select_on(row)
    assert passed(row) == [("resynthesize", "stopped_growing")]
    assert (pool.selection["mitigation"], pool.selection["resynth_rounds"]) == ("drop_k", 1)
    assert (pool.k_requested, pool.k_actual) == (6, len(SENTENCES))
    facts = receipt_of(row)
    assert (facts["k_requested"], facts["k_actual"]) == (6, 4), "on the receipt"
    assert facts["at_k_requested"]["severity"] == "degenerate"
    assert (facts["severity"], facts["n_twin_picks"]) == ("none", 0)
    picked = candidates(row, state="picked")
    assert len({next(s for s in SENTENCES if c.text.startswith(s)) for c in picked}) == 4, "one of each"
    check_drafts(row)
    check_money(row)


def test_rounds_go_on_while_groups_grow_and_end_at_the_limit(monkeypatch):
    """Each hot round brings one more kind of text: 25 % and 20 % more groups, never enough for K."""
    kinds = varied()
    new = itertools.chain.from_iterable([kinds(1)[0]] + ["Is shipping to Norway free?!"] * 5 for _ in itertools.count())
    taught_by(monkeypatch, collapsed(lambda n: list(itertools.islice(new, n))))
    row = make(sampling={"k_select": 9, "resynthesis_rounds": 3})
    pool = select_on(row)
    assert passed(row) == [("resynthesize", "rounds_used")]
    assert [r["temperature_ppm"] for r in pool.reactions if r["reaction"] == "resynthesize"] == [
        1_300_000,
        1_600_000,
        1_900_000,
    ]
    assert (pool.selection["mitigation"], pool.selection["resynth_rounds"]) == ("drop_k", 3)
    assert pool.k_actual == pool.selection["n_groups"] < 9
    check_drafts(row)


@pytest.mark.parametrize(
    ("on_gap", "sampling", "reasons", "outcome"),
    [
        (["drop_k"], {}, [], ("drop_k", 4)),
        (["drop_k", "resynthesize"], {}, [], ("drop_k", 4)),
        ("drop_k", {}, [], ("drop_k", 4)),
        (["resynthesize", "drop_k"], {"resynthesis_rounds": 0}, [("resynthesize", "rounds_used")], ("drop_k", 4)),
        (["resynthesize"], {}, [("resynthesize", "stopped_growing")], ("resynthesize", 6)),
        (["resynthesize"], {"resynthesis_rounds": 0}, [("resynthesize", "rounds_used")], ("none", 6)),
    ],
)
def test_what_is_tried_and_what_is_left(monkeypatch, on_gap, sampling, reasons, outcome):
    taught_by(monkeypatch, collapsed())
    row = make(on_gap, sampling=sampling)
    pool = select_on(row)
    assert passed(row) == reasons
    assert (pool.selection["mitigation"], pool.k_actual) == outcome
    last = warnings(row)[-1]
    assert (last["code"], last["k_requested"], last["k_actual"]) == ("cluster_gap", 6, outcome[1])
    assert ("variants of others" in last["message"]) == (outcome[1] == 6), "K stays as asked, and the warning says so"


def test_fail_ends_the_compile_only_when_what_stands_before_it_does_not_help(monkeypatch):
    taught_by(monkeypatch, collapsed())
    for on_gap, n_rounds in ((["fail"], 0), (["resynthesize", "fail"], 1)):
        row = make(on_gap)
        run = start(row)
        walk_through(run, *TO_VERIFICATION)
        with pytest.raises(CustomerError) as failed:
            run_selection(run)
        assert failed.value.code == "cluster_gap"
        (pool,) = slices(row)
        assert (pool.selection, pool.round) == (None, n_rounds)
    taught_by(monkeypatch, collapsed(varied()))
    assert select_on(make(["resynthesize", "fail"])).k_actual == 6


def test_a_mere_warning_is_reported_and_nothing_is_done(monkeypatch):
    taught_by(monkeypatch, ScriptedTeacher())
    row = make(["fail"], sampling={"k_select": 4})
    pool = select_on(row)
    assert pool.selection["severity"] == "warning", "what this test needs of its texts"
    assert (pool.reactions, pool.selection["mitigation"], pool.k_actual) == ([], "none", 4)
    assert codes(row) == {"cluster_gap": 1}
    assert "variants" not in warnings(row)[0]["message"]


def test_captures_can_neither_be_written_nor_split(monkeypatch):
    teacher = taught_by(monkeypatch, ScriptedTeacher())
    texts = list(itertools.islice(variants(), 16))
    row = make(["resynthesize", "split_slice", "drop_k"], slices=[], captures={"inline": texts})
    pool = select_on(row)
    assert passed(row) == [("resynthesize", "captured"), ("split_slice", "captured")]
    assert (pool.name, pool.selection["mitigation"], pool.k_actual) == ("captured", "drop_k", 4)
    assert teacher.asked == []


@pytest.mark.parametrize("method", ["random", "all"])
def test_a_baseline_is_left_alone(monkeypatch, method):
    taught_by(monkeypatch, collapsed())
    row = make(["resynthesize", "fail"], sampling={"method": method})
    pool = select_on(row)
    assert (pool.reactions, pool.selection["mitigation"]) == ([], "none")
    assert pool.k_actual == {"random": 6, "all": 12}[method]
    assert codes(row) == {}


def leave(row: Compile, microusd: int) -> None:
    """So much of the budget is left."""
    change(row, budget_microusd=fresh(row).spent_microusd + microusd)


def needed(row: Compile) -> int:
    """What the steps after selection are expected to cost, and the reservation of one batch."""
    estimate = fresh(row).estimate
    after = ("labeling", "distillation", "evaluation")
    return (
        sum(s["expected_microusd"] for s in estimate["steps"] if s["step"] in after) + estimate["worst_batch_microusd"]
    )


@pytest.mark.parametrize("mitigation", ["resynthesize", "split_slice"])
def test_a_round_that_the_rest_of_the_compile_needs_the_money_for_is_passed_over(monkeypatch, mitigation):
    taught_by(monkeypatch, collapsed(varied()))
    row = make([mitigation, "drop_k"])
    run = start(row)
    walk_through(run, *TO_VERIFICATION)
    leave(row, needed(row))
    walk_through(run, StepName.SELECTION, StepName.LABELING)
    assert passed(row) == [(mitigation, "budget")]
    (pool,) = slices(row)
    assert (pool.round, pool.selection["mitigation"], pool.k_actual) == (0, "drop_k", 4)
    check_money(row)


def test_what_the_customers_own_provider_bills_is_no_money_for_a_round(monkeypatch):
    taught_by(monkeypatch, collapsed(varied()))
    row = make(["resynthesize", "drop_k"])
    run = start(row)
    walk_through(run, *TO_VERIFICATION)
    billed = 5 * needed(row)
    change(row, provider_microusd=billed, budget_microusd=fresh(row).spent_microusd + billed + needed(row))
    walk_through(run, StepName.SELECTION)
    assert passed(row) == [("resynthesize", "budget")]


def test_a_round_is_opened_where_its_worst_case_fits_and_leaves_enough_to_label(monkeypatch):
    taught_by(monkeypatch, collapsed(varied()))
    row = make()
    run = start(row)
    walk_through(run, *TO_VERIFICATION)
    (pool,) = slices(row)
    worst = worst_round(run, pool, 6)
    leave(row, needed(row) + worst - 1)
    with monkeypatch.context() as patch:
        patch.setattr(mitigation, "_open_round", lambda *_: pytest.fail("one micro-dollar short"))
        patch.setattr(mitigation, "_pass_over", _die)
        with pytest.raises(Killed):
            run_selection(run)
    leave(row, needed(row) + worst)
    walk_through(take_over(run, row), StepName.SELECTION, StepName.LABELING)
    (pool,) = slices(row)
    assert (pool.selection["mitigation"], pool.k_actual) == ("resynthesize", 6)
    check_money(row)


def test_no_round_is_billed_more_than_its_worst_case(monkeypatch):
    """A server that gives one choice a call and counts as many tokens as it may."""
    kinds = varied()
    teacher = collapsed(lambda n: kinds(1))
    complete = teacher.complete

    def dear(request: Any, **options: Any) -> Completion:
        done = complete(request, **options)
        return Completion(choices=done.choices, usage=Usage(input_tokens=10**6, output_tokens=10**6))

    teacher.complete = dear  # type: ignore[method-assign]
    taught_by(monkeypatch, teacher)
    row = make(budget={"usd": 50})
    run = start(row)
    walk_through(run, *TO_VERIFICATION)
    (pool,) = slices(row)
    worst = worst_round(run, pool, 6)
    walk_through(run, StepName.SELECTION)
    by_round = [sum(c.cost_microusd for c in calls(row) if c.key.startswith(f"synthesis:0:{n}:")) for n in (1, 2)]
    assert 0 < by_round[0] <= worst
    assert by_round[1] <= worst


def test_a_teacher_that_refuses_the_temperature_does_not_end_the_compile(monkeypatch):
    def refuse(n: int) -> list[str]:
        raise TeacherFailed("temperature must be at most 1", code="teacher_rejected")

    taught_by(monkeypatch, collapsed(refuse))
    row = make()
    pool = select_on(row)
    assert passed(row) == [("resynthesize", "refused")]
    assert (pool.selection["mitigation"], pool.k_actual) == ("drop_k", 4)
    assert pool.temperature_ppm == 1_000_000, "what comes next is asked as before"
    check_drafts(row)


def test_a_teacher_that_is_away_is_waited_for(monkeypatch):
    def away(n: int) -> list[str]:
        raise TeacherFailed("connection refused", code="teacher_unreachable")

    taught_by(monkeypatch, collapsed(away))
    row = make()
    run = start(row)
    walk_through(run, *TO_VERIFICATION)
    with pytest.raises(TeacherFailed):
        run_selection(run)
    assert passed(row) == []
    taught_by(monkeypatch, collapsed(varied()))
    walk_through(take_over(run, row), StepName.SELECTION)
    assert slices(row)[0].selection["mitigation"] == "resynthesize"
    assert codes(row)["cluster_gap"] <= 2


def _die(*_: Any, **__: Any) -> None:
    raise Killed


def picks_of(row: Compile) -> list[tuple[str, str]]:
    with tenant_scope(row.tenant_id):
        names = dict(row.slices.values_list("id", "name"))
    return sorted((names[c.slice_id], c.text) for c in candidates(row, state="picked"))


PLACES = [
    (mitigation, "_open_round"),
    (generation, "fill_round"),
    (generation, "embed_slice"),
    (selection, "score_slice"),
    (mitigation, "_pass_over"),
    (selection, "_save"),
    (selection, "keep_drafts"),
    (selection, "_summary"),
]
DEATHS = [(*place, is_after) for place in PLACES for is_after in (False, True)]


@pytest.mark.parametrize(("module", "place", "is_after"), one_in(3, DEATHS), ids=[f"{p}-{a}" for _, p, a in DEATHS])
def test_whoever_dies_where_the_picks_are_the_same(monkeypatch, module, place, is_after):
    """One hot round, then a second that adds nothing, then K drops."""

    def teacher() -> ScriptedTeacher:
        hot = itertools.chain(varied()(1), variants())
        return collapsed(lambda n: list(itertools.islice(hot, n)))

    sampling = {"k_select": 8}
    whole = make(sampling=sampling)
    taught_by(monkeypatch, teacher())
    walk_through(start(whole), *TO_SELECTION)
    taught_by(monkeypatch, teacher())
    row = make(sampling=sampling)
    run = start(row)
    walk_through(run, *TO_VERIFICATION)
    real = getattr(module, place)

    def die(*args: Any, **options: Any) -> None:
        if is_after:
            real(*args, **options)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(module, place, die)
        with pytest.raises(Killed):
            run_selection(run)
    walk_through(take_over(run, row), StepName.SELECTION)
    assert picks_of(row) == picks_of(whole)
    assert [p.reactions for p in slices(row)] == [p.reactions for p in slices(whole)]
    assert codes(row) == codes(whole)
    assert len(events(row, "selection.report")) == 1
    assert step(row, StepName.SELECTION).output == step(whole, StepName.SELECTION).output
    check_drafts(row)
    check_money(row)
