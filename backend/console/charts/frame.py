"""The frame of every chart: the figure, its title and description in words, and the table of its numbers."""

from collections.abc import Callable, Sequence
from typing import Any

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from backend.console.charts.scales import Number

Write = Callable[[Any], str]
N_SERIES = 6  # colours that can be told apart

MOST_ROWS = 200  # of the table of numbers

EMPTY = SafeString("")


def join(parts: Sequence[SafeString]) -> SafeString:
    return format_html_join("", "{}", ((part,) for part in parts))


def svg(*, title: str, desc: str, height: int, body: SafeString, kind: str = "") -> SafeString:
    """A picture with a name: `role=img` takes its parts out of the reading order, the label is read instead."""
    label = f"{title}. {desc}" if desc else title
    return format_html(
        '<svg class="chart{}" role="img" aria-label="{}" width="100%" height="{}"><title>{}</title><desc>{}</desc>'
        "{}</svg>",
        f" {kind}" if kind else "",
        label,
        height,
        title,
        desc,
        body,
    )


def figure(picture: SafeString, table: SafeString, legend: SafeString = EMPTY) -> SafeString:
    return format_html('<figure class="figure">{}{}{}</figure>', legend, picture, table)


def nothing(title: str) -> SafeString:
    return format_html('<figure class="figure"><p class="muted">{}: nothing to show yet.</p></figure>', title)


def legend(names: Sequence[str]) -> SafeString:
    if len(names) < 2:
        return EMPTY
    rows = ((series_class(i), name) for i, name in enumerate(names))
    items = format_html_join("", '<li><i class="{}"></i>{}</li>', rows)
    return format_html('<ul class="legend" aria-hidden="true">{}</ul>', items)


def series_class(index: int) -> str:
    return f"s{index % N_SERIES + 1}"


def numbers_table(title: str, heads: Sequence[str], rows: Sequence[tuple[str, Sequence[str]]]) -> SafeString:
    """The chart's numbers, behind a disclosure: for readers that hear, and for whoever wants to copy one. It ends
    with a count of the rows that are too many for a page."""
    n_more = max(0, len(rows) - MOST_ROWS)
    head = format_html_join(
        "", '<th scope="col" class="{}">{}</th>', (("num" if i else "", h) for i, h in enumerate(heads))
    )
    body = join(
        [
            format_html(
                '<tr><th scope="row">{}</th>{}</tr>',
                label,
                format_html_join("", '<td class="num">{}</td>', ((cell,) for cell in cells)),
            )
            for label, cells in rows[:MOST_ROWS]
        ]
    )
    more = format_html('<p class="muted">{} more rows are not shown.</p>', f"{n_more:,}") if n_more else EMPTY
    return format_html(
        '<details class="more"><summary>Numbers</summary><div class="table-wrap" tabindex="0"><table class="table">'
        '<caption class="visually-hidden">{}</caption><thead><tr>{}</tr></thead><tbody>{}</tbody></table></div>'
        "{}</details>",
        title,
        head,
        body,
        more,
    )


def text(x: str, y: Number, words: str, kind: str = "", anchor: str = "") -> SafeString:
    return format_html(
        '<text x="{}" y="{}"{}{}>{}</text>',
        x,
        y,
        format_html(' class="{}"', kind) if kind else "",
        format_html(' text-anchor="{}"', anchor) if anchor else "",
        words,
    )


def rect(x: str, y: Number, width: str, height: Number | str, kind: str, tip: str = "") -> SafeString:
    inner = format_html("<title>{}</title>", tip) if tip else EMPTY
    return format_html(
        '<rect class="{}" x="{}" y="{}" width="{}" height="{}">{}</rect>', kind, x, y, width, height, inner
    )


def shorten(words: str, limit: int = 60) -> str:
    return words if len(words) <= limit else words[: limit - 1] + "…"
