"""How many answers a call about an input is asked for, through the steps on real rows: of a teacher that gives as many
as it is asked for, and of one that gives one whatever `n` says."""

import itertools
import random
from decimal import Decimal
from typing import Any

import pytest
from django.db import transaction

from backend.compiles.endpoint_lessons import keep_lessons
from backend.compiles.models import Compile, TeacherCall
from backend.domain.dialects.dialect import Lesson, Option
from backend.domain.labeling.votes_again import PILOT_CALLS, PILOT_ROWS, PILOT_VOTES
from backend.domain.lifecycle import StepName
from backend.drafts.models import LabelDraft, Offer
from backend.tenants.isolation import tenant_scope
from tests.factories import make_tenant
from tests.workers.labeling.test_purchases import ALL, TEXTS, TO_SELECTION, make, other, recorded, right_label
from tests.workers.labeling.test_votes_again import GUESSED, n_answered, n_asked_again, n_votes
from tests.workers.pipeline_helpers import (
    ScriptedTeacher,
    calls,
    candidates,
    check_money,
    start,
    step,
    taught_by,
    walk_through,
)
from workers.drafts import label_drafts
from workers.labeling.asking import choices_a_call
from workers.labeling.call_prices import next_calls
from workers.labeling.pilot import open_pilot
from workers.labeling.pool import place, read_pool
from workers.labeling.posteriors import weigh

pytestmark = pytest.mark.usefixtures("committed_db")

GRAMMAR = {"provider": "grammar", "model": "kolm-grammar-1"}
PRICE = {"input_usd_per_mtok": 0.5, "output_usd_per_mtok": 1.0}


def label_calls(row: Compile) -> list[TeacherCall]:
    return [call for call in calls(row) if call.step == StepName.LABELING]


def purchases(row: Compile) -> list[dict[str, Any]]:
    return [one for one in step(row, StepName.LABELING).purchases if "round" in one]


def one_of(answers: dict[str, list[str]]) -> ScriptedTeacher:
    """Gives the answers to a text in turn, one a call."""
    turns = {text: itertools.cycle(answers.get(text, [right_label(text)])) for text in TEXTS}
    return ScriptedTeacher(label=lambda text: [next(turns[text])])


def test_an_input_that_is_asked_again_gets_several_votes_by_one_call(monkeypatch):
    recorded(monkeypatch, GUESSED)
    row = make()
    walk_through(start(row), *ALL)
    again = sum(n_asked_again(row))
    assert again > 0
    assert len(label_calls(row)) == len(TEXTS) + again, "a call each"
    assert sum(n_votes(row).values()) == n_answered(row) > len(TEXTS) + 2 * PILOT_ROWS + again
    assert max(n_votes(row).values()) <= 5
    assert {one["answers_a_call"] for one in purchases(row) if "asked_again" in one["why"]} <= {2, 3, 4}
    assert step(row, StepName.LABELING).output["facts"]["votes"]["n"] == n_answered(row)
    check_money(row)


def test_an_input_is_content_with_the_one_answer_that_a_server_gives(monkeypatch):
    taught_by(monkeypatch, one_of(GUESSED))
    row = make()
    walk_through(start(row), *ALL)
    rounds, made = n_asked_again(row), label_calls(row)
    assert sum(rounds) > 0
    assert len(made) == len(TEXTS) + sum(rounds) == sum(n_votes(row).values()), "one call and one vote each"
    assert 0 < sum(call.n > 1 for call in made) < PILOT_ROWS, "after a batch it is known that one is given"
    assert all(one.n_wanted <= sum(one.votes.values()) for one in candidates(row) if one.n_wanted)
    check_money(row)


def test_new_inputs_are_asked_for_more_answers_once_a_teacher_is_known_to_guess(monkeypatch):
    texts = TEXTS + [f"{text[:-1]} again." for text in TEXTS] + [f"{text[:-1]} twice." for text in TEXTS]
    chance = random.Random(7)
    said = {text: [(other if chance.random() < 0.25 else str)(right_label(text)) for _ in range(5)] for text in texts}
    recorded(monkeypatch, said, texts=texts)
    row = make(plan="auto", captures={"inline": texts}, sampling={})
    walk_through(start(row), *ALL)
    later = [one for one in purchases(row) if "asked_again" not in one["why"]]
    assert later
    assert {one["answers_a_call"] for one in later} == {3}
    bought = {one["round"] for one in later}
    asked = {one.text: sum(one.votes.values()) for one in candidates(row) if one.bought_in in bought and one.votes}
    assert asked
    assert min(asked.values()) >= 3
    check_money(row)


def test_a_teacher_that_is_right_is_asked_for_one_answer_but_in_the_pilot(monkeypatch):
    texts = TEXTS + [f"{text[:-1]} again." for text in TEXTS] + [f"{text[:-1]} twice." for text in TEXTS]
    recorded(monkeypatch, texts=texts)
    row = make(plan="auto", captures={"inline": texts}, sampling={})
    walk_through(start(row), *ALL)
    of_rows = [one for one in purchases(row) if "asked_again" not in one["why"]]
    assert all("answers_a_call" not in one for one in of_rows)
    asked = [one for one in candidates(row) if one.votes]
    first = [sum(one.votes.values()) for one in asked if one.bought_in is None]
    assert sum(n >= PILOT_VOTES for n in first) == PILOT_ROWS, "some of which were asked again"
    assert sum(n_asked_again(row)) <= PILOT_CALLS
    check_money(row)


def test_one_call_that_gives_too_few_answers_lowers_the_next_ones_for_a_batch_at_most(monkeypatch):
    """A filter took one answer of three; all other calls give what they are asked for."""
    broken = itertools.count()
    answers = ScriptedTeacher(label=lambda text: [right_label(text)] * (2 if next(broken) == 0 else 5))
    teacher = taught_by(monkeypatch, answers)
    row = make(sampling={"k_select": len(TEXTS)}, teacher=GRAMMAR | {"concurrency": 1})
    run = start(row)
    walk_through(run, *ALL)
    assert choices_a_call(run) > PILOT_VOTES
    asked = [request for request in teacher.asked if request.item is not None]
    assert {request.seed is None for request in asked if request.n > 1} == {True}, "a seed is for one answer"
    assert all(request.seed is not None for request in asked if request.n == 1)


def test_a_teacher_that_thinks_has_no_pilot_though_its_thoughts_are_learnt(monkeypatch):
    taught_by(monkeypatch, one_of({}))
    elsewhere = {"provider": "openai_compatible", "base_url": "https://llm.example/v1", "model": "m", "price": PRICE}
    for is_learnt in (False, True):
        row = make(teacher=elsewhere)
        run = start(row)
        walk_through(run, *TO_SELECTION)
        if is_learnt:
            with tenant_scope(row.tenant_id), transaction.atomic():
                keep_lessons(row.tenant_id, elsewhere["base_url"], "m", [Lesson(option=Option.THOUGHTS)])
        open_pilot(run)
        open_pilot(run)
        assert len(candidates(row, n_wanted=PILOT_VOTES)) == (0 if is_learnt else PILOT_ROWS)
        weighed = weigh(read_pool(run, place(run)))
        worst = next_calls(run, weighed, is_changing=True, pair_usd=Decimal(0)).worst
        assert (worst.further_usd > Decimal("0.002")) is is_learnt, "4,096 tokens of thoughts at $1 a million"


def test_answers_that_are_used_again_save_the_prompts_of_the_calls_that_gave_them(monkeypatch):
    recorded(monkeypatch)
    tenant, cached = make_tenant(), {"draft_cache": {"enabled": True}}
    first = make(tenant, **cached)
    walk_through(start(first), *ALL)
    paid = sum(call.input_tokens for call in label_calls(first))
    later = make(tenant, **cached)
    walk_through(start(later), *ALL)
    with tenant_scope(tenant.id):
        offers = Offer.objects.filter(compile_id=later.id, slice_position__lte=label_drafts.LABELS)
        avoided = sum(offer.avoided_microusd for offer in offers)
        n_answers = list(LabelDraft.objects.filter(tenant_id=tenant.id).values_list("n", "n_calls"))
    assert (PILOT_VOTES, 1) in n_answers
    n_calls = len(TEXTS) + sum(n_asked_again(first))
    least = paid * len(TEXTS) // n_calls  # of each text a prompt, whatever was asked again
    assert avoided >= least * 0.1 > 0
