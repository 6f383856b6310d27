"""The purchases of a label task in words, for console and terminal: a line a round, and why there were no more.

Values are plain strings and not `Why` and `StopFor`: the terminal may be older than the service that it asks, and
starts without numpy.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from backend.domain.number_words import percent, usd

ASKED_AGAIN = "asked_again"
CANDIDATES = "candidates"
_PARTS = {  # of a round of inputs, in the order of a line
    "start": "near to a label's description",
    "uncertain": "least sure",
    "rare": "of rare labels",
    "random": "at random",
    "losing": "of slices that lose",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StopWords:
    """The reason for which labelling ended, and what a customer can do about it."""

    reason: str
    advice: str


_STOPS = {
    "flat": StopWords(
        reason="The learning curve is flat: further labels would add next to nothing.",
        advice="Look at labels that are confused: give them clearer descriptions or more gold; or try a larger base.",
    ),
    "worth": StopWords(
        reason="Further labels would cost more than what they are expected to add is worth.",
        advice="If a point of accuracy is worth more to you, raise plan.point_usd and compile again.",
    ),
    "pool": StopWords(
        reason="Every input is labelled.",
        advice="If the curve still rises, send more captures, raise sampling.n_candidates or set plan.more_candidates.",
    ),
    "budget": StopWords(
        reason="The budget has no money for another round.",
        advice="If the curve still rises, raise budget.usd and compile again.",
    ),
    "limit": StopWords(
        reason="As many inputs are labelled as the plan names.",
        advice="For more, raise sampling.k_select, or leave it out with plan: auto.",
    ),
    "rounds": StopWords(
        reason="There were as many rounds as there may be.",
        advice="In batch mode they are few, since each may take a day: teacher.mode: live has more.",
    ),
    "gate_margin": StopWords(
        reason="The gate is passed with a margin.",
        advice="If more accuracy is worth its price to you, raise gate.accuracy_lower and compile again.",
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundLine:
    """One round; number 0 are the first picks. `n_votes` were cast in it; `n_rows` inputs were labelled after it, and
    `accuracy_ppm` is the cross-validated accuracy then. They are None while it is under way, and after a round of
    candidates, which are no labels yet."""

    number: int
    bought: str
    is_again: bool = False
    is_written: bool = False
    n_votes: int | None = None
    n_rows: int | None = None
    accuracy_ppm: int | None = None

    @property
    def accuracy(self) -> str:
        """The accuracy as a text, "" for none."""
        return "" if self.accuracy_ppm is None else percent(self.accuracy_ppm)


def all_entries(facts: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The facts of a labelling step as the entries that its row has while it runs; none where nothing was decided."""
    if facts.get("stopped_for") is None:
        return []
    return [*(facts.get("purchases") or ()), {"stopped_for": facts["stopped_for"], **(facts.get("at_end") or {})}]


def round_lines(entries: Sequence[Mapping[str, Any]]) -> list[RoundLine]:
    """The first picks and each round, from `StepRun.purchases`. An entry knows what was known before its round, so that
    each round's outcome is in the entry that follows it.

    >>> entries = [{"round": 1, "n": 75, "why": {"random": 15, "uncertain": 60}, "n_rows": 100, "n_votes": 100}]
    >>> for line in round_lines([*entries, {"stopped_for": "flat", "n_rows": 175, "n_votes": 175}]):
    ...     print(line.number, line.bought, line.n_votes, line.n_rows)
    0 first picks 100 100
    1 75 inputs (60 least sure, 15 at random) 75 175
    """
    if not entries:
        return []
    lines = [_line({"round": 0}, entries[0])]
    for entry, outcome in zip(entries, [*entries[1:], {}], strict=True):
        if "round" in entry:
            lines.append(_line(entry, outcome))
    return lines


def stop_words(stopped_for: str) -> StopWords:
    """Return the words for a `StopFor`; an unknown one, of a newer release, as it is."""
    return _STOPS.get(stopped_for) or StopWords(reason=stopped_for.replace("_", " ") + ".", advice="")


def _line(entry: Mapping[str, Any], outcome: Mapping[str, Any]) -> RoundLine:
    before, after = entry.get("n_votes", 0), outcome.get("n_votes")
    if entry.get("kind") == CANDIDATES:
        return RoundLine(number=entry["round"], bought=_candidates(entry), is_written=True)
    return RoundLine(
        number=entry["round"],
        bought=_purchase(entry),
        is_again=ASKED_AGAIN in entry.get("why", {}),
        n_votes=None if after is None else after - before,
        n_rows=outcome.get("n_rows"),
        accuracy_ppm=outcome.get("accuracy_ppm"),
    )


def _candidates(entry: Mapping[str, Any]) -> str:
    """
    >>> _candidates({"n": 20, "slices": {"angry": 10, "late": 10}, "n_kept": 19, "cost_microusd": 143})
    '20 candidates for angry, late; 19 kept, $0.000143'
    """
    what = f"{entry.get('n', 0):,} candidates for {', '.join(entry.get('slices', ()))}"
    if "n_kept" not in entry:
        return what
    return f"{what}; {entry['n_kept']:,} kept, {usd(entry.get('cost_microusd', 0))}"


def _purchase(entry: Mapping[str, Any]) -> str:
    """
    >>> _purchase({"round": 2, "n": 12, "why": {"asked_again": 12}, "answers_a_call": 4})
    '12 inputs asked again, up to 4 answers each'
    """
    why, n, unpaid = entry.get("why", {}), entry.get("n", 0), entry.get("n_unpaid", 0)
    if not entry["round"]:
        return "first picks"
    known = [*(name for name in _PARTS if name in why), *(name for name in why if name not in _PARTS)]
    parts = ", ".join(f"{why[name]:,} {_PARTS.get(name, name.replace('_', ' '))}" for name in known)
    inputs = f"{n:,} input{'' if n == 1 else 's'}"
    what = f"{inputs} asked again" if ASKED_AGAIN in why else f"{inputs} ({parts})"
    n_answers = entry.get("answers_a_call", 1)
    what += f", up to {n_answers} answers each" if n_answers > 1 else ""
    return what + (f"; the budget had no money for {unpaid:,} of them" if unpaid else "")
