"""Decision lists: the first cue that is there decides."""

from hypothesis import given
from hypothesis import strategies as st

from backend.domain.recipes.mining.decision_lists import MAX_RULES, WHOLE, Example, decision_list

OPTIONS = {"min_support": 3, "min_agreement_ppm": 900_000}
words = st.sets(st.sampled_from("abcde"), max_size=4)


def example(label: str, *cues: str, weight: int = WHOLE) -> Example:
    return Example(dict.fromkeys(("", *cues), label), weight)


def test_the_cue_that_tells_most_comes_first_and_the_rest_is_left_to_others() -> None:
    rows = [example("red", "r")] * 20 + [example("blue", "b")] * 12 + [example("green")] * 11
    rules = decision_list(rows, **OPTIONS)
    assert [(rule.cue, rule.label, len(rule.covered)) for rule in rules] == [
        ("r", "red", 20),
        ("b", "blue", 12),
        ("", "green", 11),
    ]


def test_three_times_of_three_is_too_few_and_samples_that_disagree_weigh_less() -> None:
    assert decision_list([example("red")] * 3, **OPTIONS) == []
    assert decision_list([example("red", weight=WHOLE // 2)] * 30, **OPTIONS) == []
    assert decision_list([example("red")] * 12, **OPTIONS)
    assert decision_list([], **OPTIONS) == []


def test_what_a_cue_says_wrongly_counts_against_it() -> None:
    rows = [Example({"by": True, "to": None}, WHOLE)] * 15
    (rule,) = decision_list(rows, **OPTIONS)
    assert (rule.cue, rule.label) == ("by", True)


@given(st.lists(st.tuples(words, st.sampled_from("xy")), max_size=60))
def test_each_rule_agrees_on_what_those_before_it_left(rows: list[tuple[set[str], str]]) -> None:
    examples = [example(label, *sorted(cues)) for cues, label in rows]
    rules = decision_list(examples, **OPTIONS)
    left = set(range(len(examples)))
    assert len(rules) <= MAX_RULES
    for rule in rules:
        mine = {i for i in left if rule.cue in examples[i].says}
        assert mine == set(rule.covered)
        right = sum(examples[i].says[rule.cue] == rule.label for i in mine)
        assert right >= 0.9 * (len(mine) + 1)
        left -= mine
