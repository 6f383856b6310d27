"""The environment's variables, and what each kind of them must look like: `backend.settings` reads them once.

A parser takes a variable's text and gives its value, or raises ValueError with the end of a sentence that begins with
the variable's name.
"""

import base64
import binascii
import json
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import psycopg
from django.core.exceptions import ImproperlyConfigured
from psycopg.conninfo import conninfo_to_dict

from backend.domain.jobs.runner_jobs import BASE_NAME
from backend.domain.money.price_catalog import Catalog, catalog_with, shipped_catalog
from backend.domain.money.price_file import BadPriceFile, read_price_file
from backend.domain.money.vendor_prices import NO_PRICES, BadPrices, PriceTable, read_prices

if TYPE_CHECKING:
    import yaml

T = TypeVar("T")
LEAST_BLOB_BYTES = 16_777_216
MAX_PRICE_FILE_BYTES = 1_000_000

MAX_EMBEDDER_NAME = 100  # with its digest it stands in columns of 200 characters


class Environment:
    """Reads variables and keeps what was wrong with each, so that `check` can say all of it at once."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._variables = variables
        self._faults: list[str] = []

    def read(self, name: str, parse: Callable[[str], T], *, placeholder: T, default: str | None = None) -> T:
        """Return the parsed variable. `placeholder` stands in for a bad value only until `check` raises."""
        text = self._variables.get(name, "").strip() or default
        if text is None:
            self._faults.append(f"{name} is not set")
            return placeholder
        try:
            return parse(text)
        except ValueError as fault:
            self._faults.append(f"{name} {fault}")
            return placeholder

    def check(self) -> None:
        if self._faults:
            raise ImproperlyConfigured(
                "The environment is not complete: " + "; ".join(self._faults) + ". See deploy/env.example."
            )


def parse_secret(value: str) -> str:
    if len(value) < 32:
        raise ValueError(f"must have at least 32 characters, not {len(value)}")
    return value


def parse_url(value: str) -> str:
    if urlsplit(value).scheme not in ("http", "https") or not urlsplit(value).hostname:
        raise ValueError("must be an http:// or https:// address")
    return value.rstrip("/")


def parse_redis_url(value: str) -> str:
    if urlsplit(value).scheme not in ("redis", "rediss", "unix"):
        raise ValueError("must be a redis://, rediss:// or unix:// address")
    return value


def parse_postgres(value: str) -> dict[str, Any]:
    try:
        parts = conninfo_to_dict(value)
    except psycopg.ProgrammingError:
        raise ValueError("must be a postgresql:// address") from None
    if not parts.get("dbname"):
        raise ValueError("must name a database: postgresql://user:password@host:port/name")
    return parts


def parse_hex_key(value: str) -> bytes:
    try:
        key = bytes.fromhex(value)
    except ValueError:
        raise ValueError("must be hexadecimal") from None
    if len(key) != 32:
        raise ValueError(f"must be 32 bytes (64 hexadecimal digits), not {len(key)} bytes")
    return key


def parse_base64_key(value: str) -> str:
    try:
        key = base64.b64decode(value, validate=True)
    except binascii.Error:
        raise ValueError("must be base64") from None
    if len(key) != 32:
        raise ValueError(f"must be 32 bytes in base64, not {len(key)} bytes")
    return value


def parse_base64_keys(value: str) -> tuple[str, ...]:
    """Parse keys that commas separate."""
    return tuple(parse_base64_key(part.strip()) for part in value.split(",") if part.strip())


def parse_file(value: str) -> Path:
    if not Path(value).is_file():
        raise ValueError(f"names no file: {value}")
    return Path(value)


def parse_prices(value: str) -> PriceTable:
    """Parse the name of a file of teachers' prices, as docs/prices.md describes it; "" is none."""
    if not value:
        return NO_PRICES
    try:
        table = read_prices(parse_file(value).read_bytes(), origin="operator")
    except (OSError, BadPrices) as fault:
        raise ValueError(f"names a table that cannot be used, {value}: {fault}") from None
    tomorrow = datetime.now(UTC).date() + timedelta(days=1)  # of whoever is ahead of UTC
    for number, row in enumerate(table.rows, 1):
        if row.as_of > tomorrow:
            raise ValueError(
                f"names a table that cannot be used, {value}: row {number} ({row.model}): as_of: is to come"
            )
    return table


def parse_catalog(value: str) -> Catalog:
    """Parse the name of a file of price books and plans, as docs/prices.md describes it; "" is none."""
    if not value:
        return shipped_catalog()
    try:
        made = catalog_with(read_price_file(read_yaml_or_json(parse_file(value))))
    except (OSError, BadPriceFile) as fault:
        raise ValueError(f"names a file that cannot be used, {value}: {fault}") from None
    now = datetime.now(UTC)
    early = [table.version for table in made.plan_tables if table.effective_at > now]
    if early:  # a limit of a plan has no date of its own: it holds from the moment that it is read
        raise ValueError(
            f"names a file that cannot be used, {value}: the plans {early[0]} are to come; put them in when they hold"
        )
    if made.books[0].effective_at > now:
        raise ValueError(f"names a file that cannot be used, {value}: no book is in force yet")
    return made


def read_yaml_or_json(path: Path) -> object:
    """The document of a small file of the operator's. Raises BadPriceFile."""
    import yaml

    if path.stat().st_size > MAX_PRICE_FILE_BYTES:
        raise BadPriceFile(f"the file has more than {MAX_PRICE_FILE_BYTES:,} bytes")
    try:
        document: object = yaml.load(path.read_text(encoding="utf-8"), Loader=_strict_loader())
    except UnicodeDecodeError:
        raise BadPriceFile("the file is no UTF-8") from None
    except yaml.YAMLError as fault:
        raise BadPriceFile(f"the file is neither YAML nor JSON: {' '.join(str(fault).split())[:300]}") from None
    return document


def _strict_loader() -> "type[yaml.SafeLoader]":
    """YAML's safe loader that refuses a key that stands twice: the plain one would take the last without a word."""
    import yaml

    class StrictLoader(yaml.SafeLoader):
        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
            seen: set[tuple[str, str]] = set()
            for key, _ in node.value:
                if (key.tag, str(key.value)) in seen:
                    line = key.start_mark.line + 1
                    raise BadPriceFile(f"line {line}: {str(key.value)[:60]} is there twice; keep one of them")
                seen.add((key.tag, str(key.value)))
            return super().construct_mapping(node, deep)

    return StrictLoader


def parse_seller(value: str) -> dict[str, str]:
    """Parse who issues invoices."""
    try:
        seller = json.loads(value)
    except json.JSONDecodeError:
        seller = None
    known = ("name", "address", "country", "vat_id", "email", "note")
    if not isinstance(seller, dict) or not set(seller) <= set(known):
        raise ValueError(f"must be a JSON object with {', '.join(known)}, each a text")
    if not all(isinstance(text, str) and len(text) <= 500 for text in seller.values()):
        raise ValueError("must have texts of at most 500 characters")
    return seller


def parse_font(value: str) -> Path | None:
    if value and Path(value).suffix.lower() not in (".ttf", ".otf"):
        raise ValueError("must name a .ttf or .otf file")
    return parse_file(value) if value else None


def parse_count(value: str) -> int:
    if not value.isdecimal():
        raise ValueError(f"must be a whole number, not {value[:20]!r}")
    return int(value)


def parse_positive(value: str) -> int:
    if parse_count(value) < 1:
        raise ValueError("must be at least 1")
    return parse_count(value)


def parse_blob_bytes(value: str) -> int:
    if parse_count(value) < LEAST_BLOB_BYTES:
        raise ValueError(f"must be at least {LEAST_BLOB_BYTES:,}: smaller models have adapters of that size")
    return parse_count(value)


def parse_parties(value: str) -> int:
    if parse_count(value) < 5:  # the database counts for no fewer either
        raise ValueError("must be at least 5")
    return parse_count(value)


def parse_origins(value: str) -> tuple[str, ...]:
    """Parse "0", which is none, or a list such as `http://10.0.0.5:8000,http://127.0.0.1:8900`."""
    if value == "0":
        return ()
    origins = tuple(parse_url(part.strip()) for part in value.split(","))
    for origin in origins:
        if urlsplit(origin).path:
            raise ValueError(f"lists origins (scheme, host and port), not addresses with a path: {origin}")
    return origins


def parse_embedders(value: str) -> dict[str, str]:
    """Parse embedders that commas separate, the default first: `name`, `name=/folder`, or `/folder`, whose last part is
    then the name. The folder by the name, "" where none is given."""
    places: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in value.split(","))):
        name, _, folder = part.partition("=") if not part.startswith("/") else (Path(part).name, "", part)
        if not re.fullmatch(BASE_NAME, name) or len(name) > MAX_EMBEDDER_NAME:
            raise ValueError(f"names no embedder: {name[:80]!r}; one is like owner/model, or name=/folder")
        if folder and not folder.startswith("/"):
            raise ValueError(f"gives the embedder {name} a folder that does not begin with /: {folder[:80]}")
        if name in places:
            raise ValueError(f"names the embedder {name} twice")
        places[name] = folder
    if not places:
        raise ValueError("names no embedder")
    return places


def parse_hosts(value: str) -> list[str]:
    return [host.strip() for host in value.split(",")]


def parse_mail(value: str) -> tuple[str, str]:
    """Parse into ("smtp", address) or ("dir", folder)."""
    kind, _, rest = value.partition(":")
    if kind == "dir" and rest:
        return "dir", rest
    if urlsplit(value).scheme in ("smtp", "smtps") and urlsplit(value).hostname:
        return "smtp", value
    raise ValueError("must be smtp://user:password@host:port, smtps://..., or dir:/a/folder")


def parse_oidc(value: str) -> list[dict[str, str]]:
    try:
        apps = json.loads(value)
    except ValueError:
        raise ValueError("must be a JSON list") from None
    wanted = {"id", "name", "client_id", "secret", "server_url"}
    if not isinstance(apps, list) or not all(isinstance(app, dict) and set(app) == wanted for app in apps):
        raise ValueError(f"must be a list of objects with {', '.join(sorted(wanted))}")
    return apps


def parse_signup(value: str) -> str:
    if value not in ("open", "closed"):
        raise ValueError(f"must be open or closed, not {value[:20]!r}")
    return value


def parse_role(value: str) -> str:
    if value not in ("app", "owner"):
        raise ValueError(f"must be app or owner, not {value[:20]!r}")
    return value
