import json
import random

import pytest

from backend.domain.answers.json_values import is_exact
from backend.domain.rules.closure import compile_rules
from backend.domain.rules.induction import RuleOptions, induce_rules
from backend.domain.rules.reading import read_rules
from backend.domain.rules.rule_list import LabelRule
from tests.backend.domain.rules.worlds import KEYS, SCHEMA, orders, questions

LABELS = {"type": "label", "labels": sorted(KEYS)}
FIELDS = {"type": "json", "schema": SCHEMA}


def test_rules_answer_most_questions_and_nearly_always_rightly() -> None:
    made = induce_rules(questions(900), LABELS)
    answer = compile_rules(made.rules)
    fresh = [(answer(text), label) for text, label in questions(500, seed=99)]
    answered = [said == label for said, label in fresh if said is not None]
    assert len(answered) > 0.7 * len(fresh)
    assert sum(answered) >= 0.95 * len(answered)
    assert made.facts["state"] == "kept"
    assert made.facts["low_ppm"] >= 950_000
    assert made.facts["proposing"] + made.facts["heldout"] <= made.facts["pairs"] <= 900


def test_each_rule_carries_what_it_did_on_held_out_pairs() -> None:
    made = induce_rules(questions(900), LABELS)
    rules = [rule for rule in made.rules.rules if isinstance(rule, LabelRule)]
    assert sum(rule.evidence.support for rule in rules) == made.facts["answered"]
    assert sum(rule.evidence.right for rule in rules) == made.facts["right"]
    assert all(rule.evidence.right <= rule.evidence.support for rule in rules)
    assert all(rule.evidence.seen >= 3 for rule in rules)
    assert all((rule.evidence.low_ppm > 0) == (rule.evidence.right > 0) for rule in rules)


@pytest.mark.parametrize(("pairs", "form"), [(questions(400, wrong=0.02), LABELS), (orders(500), FIELDS)])
def test_equal_pairs_in_any_order_give_equal_rules(pairs: list[tuple[str, str]], form: dict[str, object]) -> None:
    options = RuleOptions(precision=0.8)
    made = induce_rules(pairs, form, options)
    shuffled = random.Random(4).sample(pairs, len(pairs))
    assert made.rules.n > 0
    assert induce_rules([*shuffled, *shuffled[:9]], form, options) == made
    assert read_rules(made.rules.to_bytes()) == made.rules


@pytest.mark.parametrize("seed", range(3))
def test_answers_drawn_at_random_make_no_rules(seed: int) -> None:
    made = induce_rules(questions(600, wrong=1.0, seed=seed), LABELS)
    assert made.rules.n == 0
    assert made.facts["state"] == "none_sure_enough"


def test_variants_of_few_texts_cannot_vouch_for_their_rules() -> None:
    """Twelve texts with forty variants each: many pairs, but nothing that was not seen."""
    rng = random.Random(6)
    bases = [(" ".join(rng.choices("abcdefghijklmnopqrst", k=12)), rng.choice(sorted(KEYS))) for _ in range(12)]
    pairs = [(f"{text} {rng.choice('uvwxyz') * 3}{n}", label) for text, label in bases for n in range(40)]
    assert induce_rules(pairs, LABELS).rules.n == 0


@pytest.mark.nightly
def test_a_json_list_answers_with_every_field_right() -> None:
    made = induce_rules(orders(1_200), FIELDS)
    answer = compile_rules(made.rules)
    fresh = [(answer(text), gold) for text, gold in orders(300, seed=98)]
    answered = [is_exact(json.loads(said), json.loads(gold)) for said, gold in fresh if said is not None]
    assert len(answered) > 0.5 * len(fresh)
    assert sum(answered) >= 0.95 * len(answered)
    assert made.facts["state"] == "kept"
    assert made.rules.low_ppm == made.facts["low_ppm"] >= 950_000
    assert all(0 < rule.evidence.right <= rule.evidence.support for rule in made.rules.rules)
    assert sum(rule.evidence.support for rule in made.rules.rules) >= 4 * made.facts["answered"]  # four fields
    said = answer("please cancel the rug of order A-1234, all 3 of them thanks")
    assert said == '{"action": "cancel", "nr": "A-1234", "item": "rug", "n": 3}'


def test_a_text_task_a_small_task_and_lists_of_things_have_no_rules() -> None:
    assert induce_rules(questions(300), {"type": "text"}).rules.n == 0
    few = induce_rules(questions(39), LABELS)
    assert (few.rules.n, few.facts["state"]) == (0, "too_few_pairs")
    schema = {"type": "object", "properties": {"items": {"type": "array", "items": {"type": "string"}}}}
    listed = [(text, json.dumps({"items": [label, text[:3]]})) for text, label in questions(200)]
    assert induce_rules(listed, {"type": "json", "schema": schema}).rules.n == 0


def test_labels_that_the_task_does_not_have_make_no_rules() -> None:
    only = {"type": "label", "labels": ["refund"]}
    rules = induce_rules(questions(900), only).rules
    assert {rule.answer for rule in rules.rules if isinstance(rule, LabelRule)} <= {"refund"}


def test_hostile_pairs_are_taken_as_they_come() -> None:
    odd = [
        ("\ud800" * 9, "refund"),
        ("", "refund"),
        ("a " * 50_000, "track"),
        ("x" * 100_000, "hours"),
        ("\0", "track"),
    ]
    induce_rules([*odd, *questions(60)], LABELS, RuleOptions(precision=0.1))
    broken = [("nothing", "{"), ("x", "[1]"), ("y", '{"action": {"deep": 1}}'), *odd]
    induce_rules([*broken, *orders(60)], FIELDS, RuleOptions(precision=0.1))


def test_half_a_surrogate_pair_in_many_texts_ends_up_in_no_rule() -> None:
    halved = [(f"\ud800 {text}", answer) for text, answer in questions(200)]
    made = induce_rules(halved, LABELS, RuleOptions(precision=0.5))
    assert made.rules.n > 0
    assert read_rules(made.rules.to_bytes()) == made.rules
    halved = [(f"\ud800 {text}", answer) for text, answer in orders(200)]
    rules = induce_rules(halved, FIELDS, RuleOptions(precision=0.5)).rules
    assert read_rules(rules.to_bytes()) == rules
