"""A matrix as a table whose cells are shaded: a confusion matrix. A table is what it is, so it stays one: readable by
ear, copied as numbers, and no SVG."""

from collections.abc import Sequence

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from backend.console.charts.frame import Write, join, nothing
from backend.console.charts.scales import Number, finite, finites

N_SHADES = 5


def heat(
    matrix: Sequence[Sequence[Number | None]],
    row_labels: Sequence[str],
    col_labels: Sequence[str],
    *,
    title: str,
    desc: str = "",
    write: Write = str,
    corner: str = "",
) -> SafeString:
    """Shades go from 0 (nothing) to 5 (the largest value)."""
    if not matrix or not col_labels:
        return nothing(title)
    most = max([0.0, *finites(value for row in matrix for value in row)])
    head = format_html_join("", '<th scope="col" title="{}">{}</th>', ((label, label) for label in col_labels))
    body = join(
        [
            format_html(
                '<tr><th scope="row" title="{}">{}</th>{}</tr>',
                label,
                label,
                format_html_join("", '<td class="h{}">{}</td>', ((shade(v, most), _cell(v, write)) for v in row)),
            )
            for label, row in zip(row_labels, matrix, strict=True)
        ]
    )
    caption = format_html("<caption>{}</caption>", f"{title}. {desc}" if desc else title)
    return format_html(
        '<figure class="figure"><div class="table-wrap" tabindex="0" role="region" aria-label="{}"><table class="heat">'
        '{}<thead><tr><td class="corner">{}</td>{}</tr></thead><tbody>{}</tbody></table></div></figure>',
        title,
        caption,
        corner,
        head,
        body,
    )


def shade(value: Number | None, most: float) -> int:
    number = finite(value)
    if number is None or number <= 0 or most <= 0:
        return 0
    return max(1, min(N_SHADES, round(number / most * N_SHADES)))


def _cell(value: Number | None, write: Write) -> str:
    return "" if value is None else write(value)
