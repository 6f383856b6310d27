import random

from backend.domain.rules.closure import compile_rules
from backend.domain.rules.induction import induce_rules
from tests.backend.domain.rules.random_lists import label_list, random_text
from tests.backend.domain.rules.worlds import KEYS, questions
from tests.bench.rules_data import Task
from tests.bench.rules_quality import _row
from tests.bench.rules_speed import Speed, made_up_list, naive

PAIRS = tuple(questions(200))
TASK = Task(name="shop", train=PAIRS, tests={"fresh": PAIRS[:50]}, answer={"type": "label", "labels": sorted(KEYS)})


def test_the_loop_that_the_closure_is_timed_beside_gives_the_same_answers() -> None:
    rng = random.Random(2)
    for _ in range(30):
        rules = label_list(rng)
        for text in (random_text(rng) for _ in range(20)):
            assert naive(rules)(text) == compile_rules(rules)(text)


def test_a_made_up_list_has_the_rules_asked_for() -> None:
    rules = made_up_list(TASK, 40)
    assert rules.n == len({rule.when for rule in rules.rules}) == 40
    assert rules == made_up_list(TASK, 40)


def test_rows_tell_what_was_measured() -> None:
    made = induce_rules(PAIRS[:30], TASK.answer)
    assert made.facts["state"] == "too_few_pairs"
    assert "| fresh (50) | 0.0 % | - |" in _row(TASK, "fresh", PAIRS[:50], 30, made, 0.2)
    assert Speed(each_us=(1.0, 3.0), us=0.5).cells() == "- | 2.00 | 2.98 | 2,000,000"
    assert Speed(each_us=(), us=2.0, ready_ms=3.4).cells() == "3 | - | - | 500,000"
