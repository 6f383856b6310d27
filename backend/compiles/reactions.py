"""The reactions of the pipeline to a slice, in order: `Slice.reactions`.

    exemplars, hotter, fallback_model   synthesis asked again          (opens a round)
    collapsed                           synthesis has nothing left to try
    resynthesize                        selection asked for more at a higher temperature (opens a round)
    refused                             the teacher refused a round; the compile goes on with what there is
    more_candidates                     a plan bought further candidates while labels came (opens a round)
    split_slice                         the slice was made into the two slices named in `into`
    split_off                           the slice is one of the two that `from` was made into (opens its first round)
    passed_over                         `mitigation` cannot help here, for `reason`

An entry holds the round that was open after it and that round's temperature, so a candidate's round tells under which
temperature and by which model it was written. A half begins with the history of the slice it was part of.
"""

from typing import Any

from backend.compiles.models import Slice

OPENS_ROUND = frozenset({"exemplars", "hotter", "fallback_model", "resynthesize", "split_off", "more_candidates"})


def note(slice_row: Slice, reaction: str, **facts: Any) -> None:
    """Append to the slice's history; the caller saves it in the transaction of what it did."""
    entry = {
        "reaction": reaction,
        "round": slice_row.round,
        "n_generated": slice_row.n_generated,
        "n_rejected": slice_row.n_rejected,
        "temperature_ppm": slice_row.temperature_ppm,
    }
    slice_row.reactions = [*slice_row.reactions, entry | facts]


def times(slice_row: Slice, reaction: str) -> int:
    return sum(entry["reaction"] == reaction for entry in slice_row.reactions)


def passed_over(slice_row: Slice, mitigation: str) -> bool:
    """Return whether it was tried on this slice to no avail; what was so for the slice it was part of may not be so
    here."""
    return any(e["reaction"] == "passed_over" and e["mitigation"] == mitigation for e in own(slice_row))


def is_half(slice_row: Slice) -> bool:
    return times(slice_row, "split_off") > 0


def split_from(slice_row: Slice) -> str | None:
    """The name of the slice that this one is a half of."""
    return next((entry["from"] for entry in slice_row.reactions if entry["reaction"] == "split_off"), None)


def split_into(slice_row: Slice) -> list[str]:
    """The names of the two slices that this one was made into; none for most."""
    return next((list(entry["into"]) for entry in slice_row.reactions if entry["reaction"] == "split_slice"), [])


def first_round(slice_row: Slice) -> int:
    """The round in which the slice asks for its N; later ones ask for half of that."""
    return next((int(entry["round"]) for entry in slice_row.reactions if entry["reaction"] == "split_off"), 0)


def bought_rounds(slice_row: Slice) -> frozenset[int]:
    """The rounds that a plan has bought."""
    return frozenset(int(e["round"]) for e in slice_row.reactions if e["reaction"] == "more_candidates")


def own(slice_row: Slice) -> list[dict[str, Any]]:
    """The slice's history without what it took over from the slice it was part of."""
    first = next((i for i, entry in enumerate(slice_row.reactions) if entry["reaction"] == "split_off"), 0)
    return list(slice_row.reactions[first:])


def openers(slice_row: Slice, round: int) -> list[dict[str, Any]]:
    """The entries that opened the rounds up to this one."""
    return [entry for entry in slice_row.reactions if entry["reaction"] in OPENS_ROUND and entry["round"] <= round]


def temperature_of(slice_row: Slice, round: int, *, first_ppm: int) -> int:
    """Return the temperature under which the candidates of a round were written; `first_ppm` is the spec's."""
    before = openers(slice_row, round)
    return int(before[-1]["temperature_ppm"]) if before else first_ppm
