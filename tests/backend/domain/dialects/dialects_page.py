"""The table of docs/teachers.md, made from the rows that ship: `python -m tests.backend.domain.dialects.dialects_page`
writes it."""

from collections.abc import Iterator
from pathlib import Path

from backend.domain.dialects.dialect import Dialect, Option
from backend.domain.dialects.table import SERVERS, UNKNOWN, VENDORS

PAGE = Path(__file__).parents[4] / "docs" / "teachers.md"
BEGIN = "<!-- dialects: written by `python -m tests.backend.domain.dialects.dialects_page`, checked by a test -->\n"
END = "<!-- end of dialects -->\n"
SHOWN = (Option.TEMPERATURE, Option.TOP_P, Option.N, Option.SEED, Option.LOGPROBS, Option.EFFORT)


def page_with_dialects(text: str) -> str:
    head, rest = text.split(BEGIN)
    tail = rest.split(END)[1]
    return head + BEGIN + "\n".join(["", *_lines(), ""]) + END + tail


def _lines() -> Iterator[str]:
    yield "| dialect | address | models | limit | JSON | drops | effort | prompt cache | page, row written |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for row in (*VENDORS, *SERVERS, UNKNOWN):
        cells = (
            f"`{row.name}`",
            ", ".join(f"`{host}`" for host in row.hosts) + (f" with `{row.path}`" if row.path else ""),
            f"`{row.models}`".replace("|", "\\|") if row.models else "",
            f"`{row.token_limit}`",
            row.response_format if Option.RESPONSE_FORMAT in row.takes else "text",
            ", ".join(f"`{option}`" for option in SHOWN if option not in row.takes),
            f"`{'.'.join(row.effort)}`: {', '.join(row.efforts) or 'any'}" if Option.EFFORT in row.takes else "",
            _cache(row),
            f"{row.source}, {row.written_on}",
        )
        yield f"| {' | '.join(cells)} |"


def _cache(row: Dialect) -> str:
    if row.has_breakpoints:
        return "marks"
    return "key" if Option.CACHE_KEY in row.takes else "the vendor's own"


if __name__ == "__main__":
    PAGE.write_text(page_with_dialects(PAGE.read_text()))
