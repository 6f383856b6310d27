"""What the bench of the gallery says of compiles: the worse of them on the cards, each of them in the table."""

from typing import Any

from tests.bench import gallery


def row(team: str, accuracy_ppm: int, seconds: int) -> dict[str, Any]:
    answers = {
        who: {"name": who, "accuracy_ppm": accuracy_ppm, "per_1000_microusd": 2_500, "answer_us": 15_000}
        for who in (gallery.STUDENT, gallery.TEACHER)
    }
    return {
        "name": "spam",
        "kind": "label",
        "team": team,
        "status": "succeeded",
        "n": 72,
        "k_score_ppm": accuracy_ppm,
        "answers": answers,
        "seconds": seconds,
        "spent_microusd": 10_000 + seconds,
    }


def test_a_card_shows_the_worse_of_two_compiles() -> None:
    figures = gallery.summary([row("north", 930_000, 90), row("south", 910_000, 80)])["spam"]
    assert (figures["accuracy_ppm"], figures["seconds"], figures["spent_microusd"]) == (910_000, 90, 10_090)
    assert figures["n_compiles"] == len(figures["runs"]) == 2


def test_the_table_has_a_line_for_each_compile() -> None:
    lines = gallery.table([row("north", 930_000, 90), row("south", 910_000, 80)]).splitlines()
    assert lines[2] == (
        "| spam | north | passed | 93.0 % of 72 | 0.930 | 1.5 | 0.010 | 0.0025, 15.0 | 93.0 %, 0.0025, 15.0 |"
    )
    assert len(lines) == 4
