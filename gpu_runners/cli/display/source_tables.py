"""Looked-at data on a terminal: the first rows, the labels with their shares, and each thing that is wrong, once."""

import sys
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from backend.domain.number_words import percent
from gpu_runners.terminal_text import as_text, raw

if TYPE_CHECKING:
    from backend.domain.source_data.profile import DataProfile
    from backend.domain.source_data.source import Source

SHOWN_LABELS, CELL_CHARS, BAR = 12, 60, 24


def print_source(source: "Source") -> None:
    """Print it on standard error: what a command answers with goes to standard output."""
    console = Console(file=raw(sys.stderr), highlight=False)
    profile, mapping = source.profile, source.mapping
    console.print(f"[bold]{source.records.n_rows:,} rows[/bold], {_shape(source)}")
    for note in source.notes:
        console.print(f"  {escape(as_text(note))}", style="dim")
    console.print(_preview(source))
    what = f"input: {', '.join(mapping.inputs)}; answer: {mapping.output or 'none'}"
    more = "".join(f"; {role}: {name}" for role, name in (("group", mapping.group), ("split", mapping.split)) if name)
    console.print(Text(as_text(what + more)))
    if profile.labels:
        console.print(_labels(profile))
    counts = f"{profile.n_usable:,} usable rows, {profile.n_duplicates:,} duplicates"
    console.print(counts + (f", {profile.n_heldout:,} held out by the file" if profile.n_heldout else ""))
    for group in profile.problems:
        numbers = ", ".join(str(one.number) for one in group.examples)
        some = "row" if group.n == 1 else "rows"
        line = f"left out: {group.n:,} {some}: {group.reason} (line {numbers}{' …' if group.n > 3 else ''})"
        console.print(Text(as_text(line), style="yellow"))
    for warning in profile.warnings:
        console.print(Text(as_text(f"warning: {warning}"), style="yellow"))


def _shape(source: "Source") -> str:
    return source.records.format if source.shape == "table" else f"{source.shape} ({source.records.format})"


def _preview(source: "Source") -> Table:
    from backend.domain.source_data.columns import cell_text

    table = Table(box=None, pad_edge=False, header_style="bold")
    names = [name for name in source.columns if name in source.mapping.columns] or list(source.columns[:4])
    for name in names:
        table.add_column(Text(as_text(name)), overflow="ellipsis", no_wrap=True, max_width=CELL_CHARS)
    for record in source.preview[:3]:
        table.add_row(*(Text(as_text(" ".join(cell_text(record.values.get(name)).split()))) for name in names))
    return table


def _labels(profile: "DataProfile") -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title, side in (("label", "left"), ("rows", "right"), ("share", "right"), ("", "left")):
        table.add_column(title, justify=side, no_wrap=True)  # type: ignore[arg-type]
    most = profile.labels[0].n
    for label in profile.labels[:SHOWN_LABELS]:
        bar = "█" * max(1, round(BAR * label.n / most))
        share = percent(label.share_ppm)
        table.add_row(Text(as_text(label.name[:CELL_CHARS])), f"{label.n:,}", share, Text(bar, style="blue"))
    if len(profile.labels) > SHOWN_LABELS:
        table.add_row(f"and {len(profile.labels) - SHOWN_LABELS:,} more", "", "", "")
    return table
