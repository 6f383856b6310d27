"""What is learned of texts of fixed forms, and what is none."""

import random
import re

import pytest

from backend.domain.extraction.assembling import Assembler
from backend.domain.extraction.learning import is_extraction
from backend.domain.extraction.plan import ExtractionPlan
from backend.domain.extraction.plan_words import refusal_message
from backend.domain.extraction.reads import ClassRead, SpanRead
from backend.domain.extraction.sentence_learning import learn_text_plan

THINGS = ("blue lamp", "desk", "tea towels", "garden hose", "red coat", "wall clock", "charger for bikes", "lamp shade")
PAIRS = [
    pair
    for number, thing in ((4000 + 37 * i, THINGS[i % len(THINGS)]) for i in range(24))
    for pair in (
        (f"please cancel {number}, the {thing}", f"Wants to cancel order {number} for {thing}."),
        (f"stop {number}", f"Wants to cancel order {number}."),
        (f"the {thing} goes back, it was {number}", f"Wants to return {thing} from order {number}."),
        (f"i send the {thing} back", f"Wants to return {thing}."),
        (f"hello, seven {thing} go back, see {number}", f"Wants to return 7 {thing} from order {number}."),
    )
]


@pytest.fixture(scope="module")
def plan() -> ExtractionPlan:
    return learn_text_plan(PAIRS)


def test_texts_of_fixed_forms_are_an_extraction_and_every_one_comes_back(plan):
    assert is_extraction(plan)
    assert plan.sentences is not None
    for source, text in PAIRS:
        answer = plan.sentences.read(text, source)
        assert answer is not None, text
        assert plan.sentences.write(answer) == text


def test_places_with_the_same_values_are_one_part_whatever_stands_around_them(plan):
    forms = {form.text for form in plan.sentences.forms}
    number = next(rule.path for rule in plan.rules if rule.n == 24 * 4)
    assert sum(f"{{{number[1:]}}}" in form for form in forms) == 4
    assert len(plan.rules) == 4  # the kind, the order, the thing and how many


def test_what_is_cancelled_and_what_is_returned_are_two_kinds(plan):
    assert len(plan.sentences.kinds) == 2


def test_a_number_may_stand_in_the_input_as_a_word(plan):
    answer = plan.sentences.read("Wants to return 12 desk from order 4000.", "a dozen desk (4000) go back")
    assert 12 in answer.values()


def test_a_value_that_does_not_stand_in_the_input_is_not_read(plan):
    assert plan.sentences.read("Wants to cancel order 5555.", "stop 4000") is None


def test_a_value_that_was_not_read_makes_a_shorter_sentence_of_the_same_kind(plan):
    text = "the desk goes back, it was 4037"
    rules = {rule.path: number for number, rule in enumerate(plan.rules)}
    whole = plan.sentences.read("Wants to return desk from order 4037.", text)
    thing = next(name for name, value in whole.items() if value == "desk")
    kind = ClassRead(rule=rules["/kind"], value=whole["kind"], confidence=0.9)
    span = SpanRead(rule=rules[f"/{thing}"], start=4, end=8, confidence=0.9)
    answer, _ = Assembler(plan.sentences.schema(), plan).answer(text, [span], [kind])
    assert plan.sentences.write(answer) == "Wants to return desk."


def test_a_plan_with_sentences_survives_json(plan):
    assert ExtractionPlan.from_json(plan.to_json()) == plan


def test_free_texts_are_no_extraction_and_the_reason_is_said():
    rng, words = random.Random(3), re.findall(r"\w+", "we will look at it soon and then write again about you")
    pairs = [(f"input {i} about a thing", " ".join(rng.sample(words, 9)) + ".") for i in range(40)]
    plan = learn_text_plan(pairs)
    assert not is_extraction(plan)
    assert plan.refusals[0].why == "its texts have no form in common"
    message = refusal_message(plan)
    assert "40 of the 40 texts" in message
    assert plan.refusals[0].examples[0] in message


@pytest.mark.parametrize("pairs", [[], [("a", "b")], [("", "")], [("same", "same")] * 30])
def test_few_empty_and_equal_texts_end_without_an_error(pairs):
    learn_text_plan(pairs)
