"""How far the first question about pooled drafts goes, and when another one pays."""

from backend.domain.drafts.question_policy import is_worth_asking_again, n_to_ask


def test_the_first_question_goes_down_the_order_until_enough_are_expected() -> None:
    assert n_to_ask([1.0] * 24, 8) == 8
    assert n_to_ask([0.8] * 24, 8) == 10
    assert n_to_ask([0.8] * 4, 8) == 4


def test_another_question_has_to_cost_less_than_writing() -> None:
    prices = {"fresh_microusd": 86.0, "verify_microusd": 21.0, "overhead_microusd": 550.0}
    assert not is_worth_asking_again(0, **prices)
    assert not is_worth_asking_again(8, **prices)
    assert is_worth_asking_again(9, **prices)
