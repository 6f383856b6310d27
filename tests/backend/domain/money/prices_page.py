"""The table of docs/prices.md, made from the rows that ship: `python -m tests.backend.domain.money.prices_page` writes
it."""

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

from backend.domain.money.vendor_prices import PROVIDER_HOSTS, shipped_prices

PAGE = Path(__file__).parents[4] / "docs" / "prices.md"
BEGIN = "<!-- prices: written by `python -m tests.backend.domain.money.prices_page`, checked by a test -->\n"
END = "<!-- end of prices -->\n"


def page_with_prices(text: str) -> str:
    head, rest = text.split(BEGIN)
    tail = rest.split(END)[1]
    return head + BEGIN + "\n".join(["", *_lines(), ""]) + END + tail


def _lines() -> Iterator[str]:
    for provider, hosts in PROVIDER_HOSTS.items():
        rows = [row for row in shipped_prices().rows if row.provider == provider]
        sources = sorted({row.source for row in rows})
        yield f"### {provider}: {', '.join(hosts)}"
        yield ""
        yield f"Source: {', '.join(f'<{source}>' for source in sources)}"
        yield ""
        yield "| model | input | cached input | cache write | output | batch | as of | remark |"
        yield "|---|---|---|---|---|---|---|---|"
        for row in rows:
            amounts = (row.input_usd_per_mtok, row.cached_input_usd_per_mtok, row.cache_write_usd_per_mtok)
            discount = "" if row.batch_discount is None else f"-{row.batch_discount:.0%}"
            remark = "; ".join(part for part in (row.note, f"until {row.until}" if row.until else "") if part)
            cells = [f"`{row.model}`", *map(_usd, amounts), _usd(row.output_usd_per_mtok), discount]
            yield f"| {' | '.join([*cells, row.as_of.isoformat(), remark])} |"
        yield ""


def _usd(amount: Decimal | None) -> str:
    return "" if amount is None else format(amount, "f")


if __name__ == "__main__":
    PAGE.write_text(page_with_prices(PAGE.read_text()))
