"""The quality card of a compile or an artifact on the terminal."""

from collections.abc import Mapping
from typing import Any

from gpu_runners.cli.display.printing import console, print_table, usd


def print_card(card: Mapping[str, Any] | None) -> None:
    """Print the card; nothing where there is none, as before the gate."""
    if not card:
        return
    from backend.domain.evaluation import card_words as words

    cells = (
        (
            words.row_words(row),
            words.accuracy_words(row),
            str(row["n"] or words.NOTHING),
            words.time_words(row),
            words.price_words(row["per_1000_microusd"]),
        )
        for row in card["rows"]
    )
    console().print()
    print_table(
        ("quality card", "accuracy", "rows", "an answer", "1,000 answers"), cells, right=(1, 2, 3, 4), none="No row."
    )
    for sentence in filter(None, (words.sure_words(card.get("sure")), words.basis_words(card))):
        print(sentence)
    print(f"The compile cost {usd(card['compile_microusd'])} and has paid for itself")
    for one in card["break_even"]:
        print(f"  {words.break_even_words(one)}")
