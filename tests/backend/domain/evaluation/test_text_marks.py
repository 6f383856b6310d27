"""Which texts are right where no judge decides."""

from backend.domain.evaluation.generative import are_right, evaluate_text
from backend.domain.spec.outputs import TextOutput

GOLD = ["Wants a.", "Wants b.", "Wants c."]
ANSWERS = ["Wants a. ", "Wants B.", "Wants c."]
PASSED = [True, True, False]


def test_an_exact_text_is_gold_s_to_the_letter_and_passes_the_checks():
    exact = TextOutput(type="text", accuracy="exact")
    assert are_right(exact, GOLD, ANSWERS, PASSED) == [True, False, False]
    found = evaluate_text(exact, GOLD, ANSWERS, passed=PASSED, baselines={"common": [False, False, False]})
    assert (found.correct, found.n, found.accuracy_kind) == (1, 3, "exact")


def test_where_checks_decide_gold_s_words_do_not():
    checks = TextOutput(type="text", accuracy="checks")
    assert are_right(checks, GOLD, ANSWERS, PASSED) == [True, True, False]
