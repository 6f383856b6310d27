import random

from hypothesis import given, settings
from hypothesis import strategies as st

from backend.domain.rules.closure import compile_batch, compile_numbers, compile_rules
from backend.domain.rules.rule_list import EMPTY, Evidence, LabelRule, RuleList
from backend.domain.rules.text_patterns import COMPILED
from backend.domain.rules.wording import words_of
from tests.backend.domain.rules.random_lists import field_list, label_list, random_text


def rule(answer: str, *when: str, unless: tuple[str, ...] = ()) -> LabelRule:
    return LabelRule(when=when, unless=unless, answer=answer, evidence=Evidence())


def rule_list(*rules: LabelRule) -> RuleList:
    return RuleList(task="label", rules=rules)


def holds_by_definition(condition: str, text: str) -> bool:
    if condition.startswith("<"):
        return COMPILED[condition[1:-1]].search(text) is not None
    words = ["^", *words_of(text), "$"]
    wanted = condition.split(" ")
    seen = ["#" if word.isascii() and word.isdigit() and "#" in wanted else word for word in words]
    return any(seen[at : at + len(wanted)] == wanted for at in range(len(seen)))


def first_by_definition(rules: RuleList, text: str) -> int | None:
    for number, one in enumerate(rules.rules):
        assert isinstance(one, LabelRule)
        wanted = all(holds_by_definition(condition, text) for condition in one.when)
        if wanted and not any(holds_by_definition(condition, text) for condition in one.unless):
            return number
    return None


def test_the_first_rule_that_applies_answers() -> None:
    rng = random.Random(8)
    n_answered = 0
    for _ in range(150):
        rules = label_list(rng)
        number, answer = compile_numbers(rules), compile_rules(rules)
        for text in (random_text(rng) for _ in range(40)):
            expected = first_by_definition(rules, text)
            assert number(text) == expected
            assert answer(text) == (None if expected is None else rules.rules[expected].answer)
            n_answered += expected is not None
    assert n_answered > 300


def test_many_texts_at_a_time_get_the_same_answers() -> None:
    rng = random.Random(9)
    for make in (label_list, field_list):
        for _ in range(20):
            rules = make(rng)
            answer = compile_rules(rules)
            for texts in ([random_text(rng) for _ in range(30)], ["top up", "a card"], ["top\nup", "x"], [""], []):
                assert compile_batch(rules)(texts) == [answer(text) for text in texts]


def test_more_texts_than_are_normalised_in_one_piece_are_all_answered() -> None:
    rules = rule_list(rule("a", "top up"))
    texts = ["Top-up!", "no"] * 1_500
    assert compile_batch(rules)(texts) == ["a", None] * 1_500


@settings(deadline=None)
@given(st.text(st.characters(exclude_categories=())))
def test_no_text_makes_a_list_raise(text: str) -> None:
    for make in (label_list, field_list):
        compile_rules(make(random.Random(3)))(text)


def test_a_phrase_is_of_whole_words() -> None:
    answer = compile_rules(rule_list(rule("a", "top up"), rule("b", "^ card $"), rule("c", "# hours")))
    said = [answer(text) for text in ("stop up", "top-up", "the card", "CARD.", "24 hours", "x24 hours")]
    assert said == [None, "a", None, "b", "c", None]


def test_an_exception_keeps_a_rule_from_answering() -> None:
    answer = compile_rules(rule_list(rule("a", "refund", unless=("no refund", "<email>")), rule("b", "refund")))
    assert [answer(t) for t in ("refund", "No refund", "refund a@b.de")] == ["a", "b", "b"]


def test_an_empty_list_says_nothing() -> None:
    assert compile_rules(EMPTY)("anything") is None
    assert compile_rules(RuleList(task="json", rules=()))("anything") is None
