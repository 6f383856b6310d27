"""The quality card as a picture: each row's accuracy with its interval, and under it what an answer takes and costs."""

from collections.abc import Mapping
from typing import Any

from django.utils.safestring import SafeString

from backend.console.charts.frame import figure, join, nothing, numbers_table, rect, shorten, svg, text
from backend.console.charts.scales import percent, share
from backend.domain.evaluation import card_words as words
from backend.domain.evaluation.classification import PPM
from backend.domain.evaluation.quality_card import STUDENT

ROW = 58


def card_figure(card: Mapping[str, Any], *, title: str = "Quality card") -> SafeString:
    """The picture with the table of its numbers."""
    if not card["rows"]:
        return nothing(title)
    heads = ["", "Accuracy", "Rows", "An answer", "1,000 answers"]
    table = [(words.row_words(row), _cells(row)) for row in card["rows"]]
    return figure(card_picture(card, title=title), numbers_table(title, heads, table))


def card_picture(card: Mapping[str, Any], *, title: str) -> SafeString:
    """The picture alone."""
    rows = card["rows"]
    parts = [part for i, row in enumerate(rows) for part in _parts(i * ROW, row)]
    spoken = ", ".join(f"{row['words']} {words.accuracy_words(row)}" for row in rows)
    return svg(title=title, desc=spoken, height=len(rows) * ROW, body=join(parts), kind="card-picture")


def _parts(y: int, row: Mapping[str, Any]) -> list[SafeString]:
    """Name, interval, and what is known of accuracy, time and price: short lines, for narrow places."""
    fitted = f"fitted on {row['n_trained']:,}" if row.get("n_trained") else ""
    costs = f"{words.time_words(row)} · {words.price_words(row['per_1000_microusd'])} for 1,000"
    rows = f"{words.accuracy_words(row)} of {row['n']:,}" if row["n"] else "not measured"
    parts = [
        text("0", y + 13, shorten(row["words"]), "name"),
        text("100%", y + 13, fitted, anchor="end"),
        rect("0", y + 23, "100%", 2, "track"),
        text("0", y + 42, rows, "value"),
        text("100%", y + 42, costs, anchor="end"),
    ]
    if row["accuracy_ppm"] is None:
        return parts
    start, end = share(row["low_ppm"], 0, PPM), share(row["high_ppm"], 0, PPM)
    tone = "s1" if row["name"] == STUDENT else "s5"
    at = percent(share(row["accuracy_ppm"], 0, PPM))
    whisker = SafeString(f'<line class="whisker" x1="{at}" x2="{at}" y1="{y + 18}" y2="{y + 30}"/>')
    return [*parts, rect(percent(start), y + 21, percent(max(0.3, end - start)), 6, tone), whisker]


def _cells(row: Mapping[str, Any]) -> list[str]:
    price = words.price_words(row["per_1000_microusd"])
    return [words.accuracy_words(row), f"{row['n']:,}", words.time_words(row), price]
