"""The table of docs/teachers.md, made from the rows that ship: `python -m tests.backend.domain.dialects.dialects_page`
writes it."""

from collections.abc import Iterator
from pathlib import Path

from backend.domain.dialects.batches import OTHER_PROTOCOLS
from backend.domain.dialects.dialect import Dialect, Option
from backend.domain.dialects.table import SERVERS, UNKNOWN, VENDORS

PAGE = Path(__file__).parents[4] / "docs" / "teachers.md"
BATCHES = "<!-- batches: written by `python -m tests.backend.domain.dialects.dialects_page`, checked by a test -->\n"
END_OF_BATCHES = "<!-- end of batches -->\n"
BEGIN = "<!-- dialects: written by `python -m tests.backend.domain.dialects.dialects_page`, checked by a test -->\n"
END = "<!-- end of dialects -->\n"
SHOWN = (Option.TEMPERATURE, Option.TOP_P, Option.N, Option.SEED, Option.LOGPROBS, Option.EFFORT)


def page_with_dialects(text: str) -> str:
    text = _between(text, BATCHES, END_OF_BATCHES, _batch_lines())
    return _between(text, BEGIN, END, _lines())


def _between(text: str, begin: str, end: str, lines: Iterator[str]) -> str:
    head, rest = text.split(begin)
    return head + begin + "\n".join(["", *lines, ""]) + end + rest.split(end)[1]


def _batch_lines() -> Iterator[str]:
    yield "| dialect | batches | cached input | window | page, row written |"
    yield "|---|---|---|---|---|"
    for row in VENDORS:
        if row.batch is not None:
            cached = "less by the same share" if row.batch.with_cache else "billed as input"
            day = f"{row.batch.source}, {row.batch.written_on}"
            yield f"| `{row.name}` | -{row.batch.discount:.0%} | {cached} | {row.batch.window_h} h | {day} |"
        else:
            yield f"| `{row.name}` | none: {OTHER_PROTOCOLS.get(row.name, 'none is known')} | | | |"


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
            f"{row.source}, {row.written_on}" + (f"; asked: {row.asked}" if row.asked else ""),
        )
        yield f"| {' | '.join(cells)} |"


def _cache(row: Dialect) -> str:
    if row.has_breakpoints:
        return "marks"
    return "key" if Option.CACHE_KEY in row.takes else "the vendor's own"


if __name__ == "__main__":
    PAGE.write_text(page_with_dialects(PAGE.read_text()))
