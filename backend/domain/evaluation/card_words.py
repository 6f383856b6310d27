"""The quality card in words, as console, terminal and README show it: cells of its rows, sentences of the rest."""

from collections.abc import Mapping
from typing import Any

from backend.domain.evaluation.quality_card import Basis, Place, WhyNot
from backend.domain.number_words import interval, milliseconds, percent, score, usd

NOTHING = "–"
_PLACES = {Place.RUNNER: "on a runner", Place.HOME: "at home"}
_WHY_NOT = {
    WhyNot.NOT_CHEAPER: "never: an answer costs no less than the teacher's",
    WhyNot.NO_PRICE: "not known: this compile paid for no answer of the teacher",
}


def accuracy_words(row: Mapping[str, Any]) -> str:
    """The accuracy with its interval.

    >>> accuracy_words({"n": 10, "accuracy_ppm": 800_000, "low_ppm": 490_162, "high_ppm": 943_318})
    '80.0 % [49.0, 94.3]'
    """
    if row["accuracy_ppm"] is None:
        return NOTHING
    return f"{percent(row['accuracy_ppm'])} {interval(row['low_ppm'], row['high_ppm'])}"


def time_words(row: Mapping[str, Any]) -> str:
    """The time of one answer; from the request on where it is not the model's own.

    >>> time_words({"answer_us": 5_020, "time_kind": "own"}), time_words({"answer_us": 420_000, "time_kind": "request"})
    ('5.02 ms', '420 ms a request')
    """
    if row["answer_us"] is None:
        return NOTHING
    words = milliseconds(row["answer_us"])
    return words if row["time_kind"] == "own" else f"{words} a request"


def price_words(per_1000_microusd: int | None) -> str:
    """Dollars for 1,000 answers.

    >>> price_words(750), price_words(30_750), price_words(1_234_500), price_words(0), price_words(None)
    ('$0.00075', '$0.0308', '$1.23', '$0', '–')
    """
    return NOTHING if per_1000_microusd is None else usd(per_1000_microusd)


def row_words(row: Mapping[str, Any]) -> str:
    """The name of a row, with the pairs that it was fitted on where that is known."""
    return f"{row['words']}, n = {row['n_trained']:,}" if row.get("n_trained") else str(row["words"])


def break_even_words(one: Mapping[str, Any]) -> str:
    """The answers after which a compile has paid for itself, at one place.

    >>> break_even_words({"place": "home", "per_1000_microusd": 0, "calls": 1952, "why_not": None})
    'at home ($0 for 1,000 answers): after 1,952 answers'
    """
    reason = one["why_not"]
    when = f"after {one['calls']:,} answers" if reason is None else _WHY_NOT[WhyNot(reason)]
    return f"{_PLACES[Place(one['place'])]} ({price_words(one['per_1000_microusd'])} for 1,000 answers): {when}"


def basis_words(card: Mapping[str, Any]) -> str:
    """The sentence that says what the teacher's price is of."""
    n = card["n_teacher_calls"]
    if card["teacher_basis"] == Basis.HELD_OUT:
        return f"The teacher's price is the mean of what its answers to {n:,} held-out inputs were billed."
    if card["teacher_basis"] == Basis.LABELING:
        return (
            "The teacher was asked about no held-out input; its price is the mean of what its "
            f"{n:,} labeling calls were billed, without the output of second and later answers."
        )
    return "This compile paid for no answer of the teacher, so its price is not known."


def sure_words(sure: Mapping[str, Any] | None) -> str:
    """The sentence that says what a task that abstains is sure of; "" for any other.

    >>> sure = {"n": 100, "n_sure": 90, "accuracy_ppm": 966_666, "accuracy_low_ppm": 906_545, "threshold_ppm": 800_000}
    >>> print(sure_words(sure | {"accuracy_high_ppm": 988_611, "target_ppm": 950_000}))
    Sure (confidence from 0.800) of 90 of 100 held-out answers: 96.6 % [90.6, 98.8] of them are right, 95.0 % is wanted.
    """
    if not sure:
        return ""
    bounds = {"low_ppm": sure["accuracy_low_ppm"], "high_ppm": sure["accuracy_high_ppm"]}
    right = accuracy_words({"accuracy_ppm": sure["accuracy_ppm"], **bounds})
    return (
        f"Sure (confidence from {score(sure['threshold_ppm'])}) of {sure['n_sure']:,} of {sure['n']:,} held-out "
        f"answers: {right} of them are right, {percent(sure['target_ppm'])} is wanted."
    )
