"""The purchases of labelling, as a compile's page shows them round by round: from the step's row while it runs, from
its facts where that has none."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.utils.safestring import SafeString

from backend.compiles.models import StepRun
from backend.console.charts import line
from backend.domain.labeling.purchase_words import RoundLine, StopWords, all_entries, round_lines, stop_words
from backend.domain.lifecycle import StepName
from backend.domain.number_words import percent

PPM = 1_000_000
TITLE = "Cross-validated accuracy over labelled inputs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Purchases:
    """The section's contents. `stop` is None while labelling goes on; without a round there are no `lines` and no
    `chart`, and `n_at_once` inputs had `n_votes_each` votes."""

    lines: Sequence[RoundLine] = ()
    chart: SafeString | None = None
    stop: StopWords | None = None
    votes: str = ""
    errors: str = ""
    n_at_once: int = 0
    n_votes_each: int = 0


def shown_purchases(steps: Sequence[StepRun]) -> Purchases | None:
    """The section of a compile with these steps; None before anything is labelled."""
    step = next((step for step in steps if step.name == StepName.LABELING), None)
    if step is None:
        return None
    facts = (step.output or {}).get("facts", {})
    entries = step.purchases or all_entries(facts)
    if not entries:
        if "n_labeled" not in facts:
            return None
        n = facts["n_labeled"] + facts.get("n_unverified", 0)
        return Purchases(n_at_once=n, n_votes_each=facts.get("label_samples", 0))
    lines, last = round_lines(entries), entries[-1]
    return Purchases(
        lines=lines,
        chart=_chart(lines, last.get("curve") or facts.get("curve") or ()),
        stop=stop_words(last["stopped_for"]) if "stopped_for" in last else None,
        votes=_votes((facts.get("votes") or {}).get("rows", {})),
        errors=_errors(last.get("noise") or facts.get("noise") or {}),
    )


def _chart(lines: Sequence[RoundLine], curve: Sequence[Mapping[str, Any]]) -> SafeString:
    known = [(one, (one.n_rows or 0, one.accuracy_ppm / PPM)) for one in lines if one.accuracy_ppm is not None]
    after = dict(point for _, point in known)  # votes change the accuracy of as many inputs: the last one counts
    points = [(point["n"], point["accuracy_ppm"] / PPM) for point in curve]
    series = [("after each round", sorted(after.items()))]
    return line(
        [*series, ("learning curve", points)] if points else series,
        title=TITLE,
        write=lambda value: percent(round(value * PPM)),
        write_x=lambda value: f"{value:,.0f}",
        marks=[
            ("inputs bought", [point for one, point in known if not one.is_again]),
            ("votes bought", [point for one, point in known if one.is_again]),
        ],
    )


def _votes(rows: Mapping[str, int]) -> str:
    """The numbers of inputs by how many votes they have.

    >>> _votes({"1": 540, "2": 60, "10": 1})
    '540 with 1, 60 with 2, 1 with 10'
    """
    return ", ".join(f"{n:,} with {k}" for k, n in sorted(rows.items(), key=lambda one: int(one[0])))


def _errors(noise: Mapping[str, Any]) -> str:
    """The label that the teacher is estimated to answer worst, and how often it does.

    >>> _errors({"error_ppm": {"refund": 21_000, "other": 4_000}})
    "an estimated 2.1 % of its answers to inputs of 'refund' are wrong; of every other label no more"
    """
    errors = noise.get("error_ppm") or {}
    if not errors:
        return ""
    worst = max(errors, key=lambda label: errors[label])
    share = f"an estimated {percent(errors[worst])} of its answers to inputs of {worst!r} are wrong"
    return f"{share}; of every other label no more"
