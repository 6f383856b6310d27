"""The prices of vendors' models, each with its date and source: the table that ships, and an operator's own in the same
form. Which of them a teacher is billed by is decided in `teacher_prices`.

A row belongs to a host: one open model has another price at every host, so a model's name alone is no key, and a dated
snapshot has a row of its own. Nothing here is copied from a row to a model that the vendor does not name beside it.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from functools import cache, cached_property
from importlib import resources
from typing import Any, Literal, TypeVar
from urllib.parse import urlsplit

from backend.domain.strict_json import BadJson, read_json

T = TypeVar("T")
Origin = Literal["operator", "vendor"]

# The hosts of a provider's OpenAI-compatible endpoints. A gateway that sends each call where it is cheapest has no
# price of its own and is in no table.
PROVIDER_HOSTS: Mapping[str, tuple[str, ...]] = {
    "openai": ("api.openai.com",),
    "anthropic": ("api.anthropic.com",),
    "google": ("generativelanguage.googleapis.com",),
    "mistral": ("api.mistral.ai",),
    "groq": ("api.groq.com",),
    "deepseek": ("api.deepseek.com",),
    "together": ("api.together.xyz", "api.together.ai"),
    "fireworks": ("api.fireworks.ai",),
    "xai": ("api.x.ai",),
    "cerebras": ("api.cerebras.ai",),
    "bedrock": ("bedrock-runtime.us-east-1.amazonaws.com",),
}
MAX_USD_PER_MTOK = 10_000  # as a spec may declare
MAX_ROWS = 10_000
_REQUIRED = ("model", "input_usd_per_mtok", "output_usd_per_mtok", "as_of", "source")
_OPTIONAL = (
    *("provider", "host", "cached_input_usd_per_mtok", "cache_write_usd_per_mtok"),
    *("batch_discount", "until", "note", "free"),
)
_DECIMAL = re.compile(r"[0-9]{1,6}(\.[0-9]{1,9})?")
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(:[0-9]{1,5})?")
_DEFAULT_PORTS = {"https": 443, "http": 80}


class BadPrices(ValueError):
    """A table that cannot be used; the message names the row, its model and the field."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceRow:
    """The price of one model at one provider, or at one host. `until` is the last day that the vendor published it
    for; `batch_discount` the share that the vendor's batch endpoint takes off."""

    provider: str
    host: str
    model: str
    input_usd_per_mtok: Decimal
    output_usd_per_mtok: Decimal
    cached_input_usd_per_mtok: Decimal | None
    cache_write_usd_per_mtok: Decimal | None
    batch_discount: Decimal | None
    free: bool
    as_of: date
    until: date | None
    source: str
    note: str

    @property
    def place(self) -> str:
        return self.provider or self.host

    @property
    def hosts(self) -> tuple[str, ...]:
        return PROVIDER_HOSTS[self.provider] if self.provider else (self.host,)


@dataclass(frozen=True)
class PriceTable:
    """The rows of one origin, found by host and model."""

    origin: Origin
    rows: tuple[PriceRow, ...] = ()

    @cached_property
    def _by_place(self) -> dict[tuple[str, str], PriceRow]:
        return {(host, row.model): row for row in self.rows for host in row.hosts}

    def find(self, host: str | None, model: str) -> PriceRow | None:
        """The row for a model, spelled exactly so, at a host as `host_of` writes it."""
        return None if host is None else self._by_place.get((host, model))

    def models_at(self, host: str | None) -> list[str]:
        return sorted(model for place, model in self._by_place if place == host)

    def places_of(self, model: str) -> list[str]:
        return sorted({row.place for row in self.rows if row.model == model})


NO_PRICES = PriceTable("operator")


@cache
def shipped_prices() -> PriceTable:
    """The vendors' prices that this version of kolm ships."""
    body = resources.files("backend.domain.money").joinpath("vendor_prices.json").read_bytes()
    return read_prices(body, origin="vendor")


def host_of(address: str | None) -> str | None:
    """The host of an endpoint in the table's spelling: small letters, the port only where it is not the scheme's.

    >>> host_of("https://API.OpenAI.com:443/v1"), host_of("http://10.0.0.5:8000/v1"), host_of(None)
    ('api.openai.com', '10.0.0.5:8000', None)
    """
    if address is None:
        return None
    try:
        parts = urlsplit(address)
        name, port = parts.hostname, parts.port
    except ValueError:
        return None
    if not name:
        return None
    name = f"[{name}]" if ":" in name else name.removesuffix(".")
    return name if port is None or port == _DEFAULT_PORTS.get(parts.scheme) else f"{name}:{port}"


def read_prices(body: bytes, *, origin: Origin) -> PriceTable:
    """The table in `{"prices": [row, ...]}`. Raises BadPrices."""
    try:
        value = read_json(body)
    except BadJson as fault:
        raise BadPrices(str(fault).replace("The body", "the file", 1).rstrip(".")) from None
    rows = value.get("prices") if isinstance(value, dict) and set(value) == {"prices"} else None
    if not isinstance(rows, list) or len(rows) > MAX_ROWS:
        raise BadPrices(f'the file is no object with "prices" alone, a list of at most {MAX_ROWS} rows')
    table = PriceTable(origin, tuple(_row(number, row) for number, row in enumerate(rows, 1)))
    _refuse_twice(table.rows)
    return table


def _refuse_twice(rows: Iterable[PriceRow]) -> None:
    first: dict[tuple[str, str], int] = {}
    for number, row in enumerate(rows, 1):
        for host in row.hosts:
            before = first.setdefault((host, row.model), number)
            if before != number:
                raise BadPrices(f"row {number} ({row.model}): model: row {before} has it for {host} already")


def _row(number: int, value: Any) -> PriceRow:
    if not isinstance(value, dict):
        raise BadPrices(f"row {number} is no object")
    model = value.get("model")
    where = f"row {number} ({model[:80]})" if isinstance(model, str) else f"row {number}"
    try:
        return _read_row(value)
    except _BadField as fault:
        raise BadPrices(f"{where}: {fault}") from None


class _BadField(ValueError):
    """`field: what is wrong`, without the row."""


def _read_row(value: Mapping[str, Any]) -> PriceRow:
    for field in value:
        if field not in (*_REQUIRED, *_OPTIONAL):
            raise _BadField(f"{field[:40]}: no such field")
    for field in _REQUIRED:
        if field not in value:
            raise _BadField(f"{field}: is missing")
    row = PriceRow(
        provider=_text(value, "provider", 40),
        host=_text(value, "host", 260),
        model=_text(value, "model", 200),
        input_usd_per_mtok=_usd(value, "input_usd_per_mtok"),
        output_usd_per_mtok=_usd(value, "output_usd_per_mtok"),
        cached_input_usd_per_mtok=_maybe(_usd, value, "cached_input_usd_per_mtok"),
        cache_write_usd_per_mtok=_maybe(_usd, value, "cache_write_usd_per_mtok"),
        batch_discount=_maybe(_decimal, value, "batch_discount"),
        free=_flag(value, "free"),
        as_of=_day(value, "as_of"),
        until=_maybe(_day, value, "until"),
        source=_text(value, "source", 500),
        note=_text(value, "note", 200),
    )
    _check_place(row)
    _check_amounts(row)
    return row


def _check_place(row: PriceRow) -> None:
    if not row.model or re.search(r"\s", row.model):
        raise _BadField("model: a name without spaces is needed")
    if not row.source:
        raise _BadField("source: where the price is published, or the contract that it is in")
    if bool(row.provider) == bool(row.host):
        raise _BadField("provider: either a provider or a host is needed, and not both")
    if row.provider and row.provider not in PROVIDER_HOSTS:
        raise _BadField(f"provider: known are {', '.join(PROVIDER_HOSTS)}; give a host otherwise")
    if row.host and not _HOST.fullmatch(row.host):
        raise _BadField("host: a host in small letters, with its port where it has one: llm.example.com:8443")


def _check_amounts(row: PriceRow) -> None:
    if row.batch_discount is not None and not 0 < row.batch_discount < 1:
        raise _BadField("batch_discount: a share between 0 and 1, such as 0.5")
    for field in ("input_usd_per_mtok", "output_usd_per_mtok", "cached_input_usd_per_mtok", "cache_write_usd_per_mtok"):
        amount = getattr(row, field)
        if amount == 0 and not row.free:
            raise _BadField(f'{field}: 0; a model that costs nothing is marked "free": true')
        if amount and row.free:
            raise _BadField(f"{field}: {amount}; a model that is free has no price but 0")


def _maybe(read: Callable[[Mapping[str, Any], str], T], value: Mapping[str, Any], field: str) -> T | None:
    return None if value.get(field) is None else read(value, field)


def _text(value: Mapping[str, Any], field: str, most: int) -> str:
    text = value.get(field)
    if text is None:
        return ""
    if not isinstance(text, str) or len(text) > most or not text.isprintable() or text != text.strip():
        raise _BadField(f"{field}: a line of at most {most} characters is needed")
    return text


def _flag(value: Mapping[str, Any], field: str) -> bool:
    flag = value.get(field, False)
    if not isinstance(flag, bool):
        raise _BadField(f"{field}: true or false is needed")
    return flag


def _decimal(value: Mapping[str, Any], field: str) -> Decimal:
    text = value[field]
    if not isinstance(text, str) or not _DECIMAL.fullmatch(text):
        raise _BadField(f'{field}: a decimal number in quotes is needed, such as "0.15"')
    return Decimal(text)


def _usd(value: Mapping[str, Any], field: str) -> Decimal:
    amount = _decimal(value, field)
    if amount > MAX_USD_PER_MTOK:
        raise _BadField(f"{field}: more than {MAX_USD_PER_MTOK} US dollars per million tokens")
    return amount


def _day(value: Mapping[str, Any], field: str) -> date:
    text = value[field]
    try:
        return date.fromisoformat(text if isinstance(text, str) and _DAY.fullmatch(text) else "")
    except ValueError:
        raise _BadField(f"{field}: a day is needed, such as 2026-11-01") from None
