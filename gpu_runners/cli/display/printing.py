"""The API's answers on standard output: a table or lines of `name value` for people, JSON for programs."""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from backend.domain import number_words
from gpu_runners.terminal_text import as_text, raw

WIDTH = 200  # where there is no terminal to ask
Row = Mapping[str, Any]


def console() -> Console:
    """It draws, so it has the stream that lets colours through, and its cells are escaped here."""
    stream = raw(sys.stdout)
    made = Console(file=stream)
    return made if made.is_terminal else Console(file=stream, width=WIDTH)


def print_json(value: Any) -> None:
    print(json.dumps(value, ensure_ascii=False), flush=True)


def print_lines(rows: Any) -> None:
    """Typed rows as the API gave them, one a line."""
    for row in rows:
        print_json(row.raw)


def print_table(titles: Sequence[str], rows: Iterable[Sequence[str]], *, right: Sequence[int] = (), none: str) -> None:
    """`right`: columns of numbers. `none` is said where there is no row."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for at, title in enumerate(titles):
        table.add_column(title, justify="right" if at in right else "left", no_wrap=at == 0)
    for row in rows:
        table.add_row(*(Text(as_text(cell)) for cell in row))  # Text: names and texts are no markup
    console().print(table if table.row_count else none)


def print_members(row: Row) -> None:
    """One object, a member a line; what has members itself as JSON, indented."""
    grid = Table.grid(padding=(0, 2))
    for name, value in row.items():
        if value is not None and value != "" and value != [] and name != "object":
            grid.add_row(Text(as_text(name), style="bold"), Text(as_text(_text(name, value))))
    console().print(grid)


def when(value: Any) -> str:
    """`2026-11-22 10:14:31`, in UTC as the API has it."""
    if isinstance(value, datetime):
        value = value.isoformat()
    return str(value or "")[:19].replace("T", " ")


def usd(microusd: int | None) -> str:
    return "" if microusd is None else number_words.usd(microusd)


def score(ppm: int | None) -> str:
    return "" if ppm is None else number_words.score(ppm)


def _text(name: str, value: Any) -> str:
    if name.endswith("_microusd") and isinstance(value, int):
        return usd(value)
    if name.endswith("_ppm") and isinstance(value, int):
        return score(value)
    if name.endswith("_us") and isinstance(value, int):
        return number_words.milliseconds(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return ", ".join(value)
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False, indent=1)
    return str(value)
