"""The quality card as the pages of a compile and of its artifact show it."""

from collections.abc import Mapping
from typing import Any

from backend.console.charts import card_figure
from backend.domain.evaluation import card_words


def shown_card(evaluation: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The picture and the sentences of the card that is stored with an evaluation; None where there is none."""
    card = (evaluation or {}).get("card")
    if not card:
        return None
    return {
        "picture": card_figure(card),
        "compile_microusd": card["compile_microusd"],
        "break_even": [card_words.break_even_words(one) for one in card["break_even"]],
        "sure": card_words.sure_words(card.get("sure")),
        "basis": card_words.basis_words(card),
    }
