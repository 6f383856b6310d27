"""The URLs and addresses that may be called: judgements only, nothing is resolved or opened here."""

import ipaddress
import re
from collections.abc import Iterable

import httpx

from backend.domain.errors import InvalidInput

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address

PORTS = frozenset({443, 8443})

# IANA special-purpose registry plus clouds' metadata on public addresses; written out because `is_global` of 3.11.7
# predates fixes to it
_NOT_PUBLIC_V4 = tuple(
    ipaddress.ip_network(net)
    for net in [
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.31.196.0/24",
        "192.52.193.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "192.175.48.0/24",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",
        "240.0.0.0/4",
        "168.63.129.16/32",
    ]
)
# IPv6 is the other way round: only 2000::/3 is handed out, and these parts of it embed IPv4 (Teredo, 6to4) or are
# not routed
_PUBLIC_V6 = ipaddress.ip_network("2000::/3")
_NOT_PUBLIC_V6 = tuple(
    ipaddress.ip_network(net) for net in ["2001::/23", "2001:db8::/32", "2002::/16", "2620:4f:8000::/48", "3fff::/20"]
)
_HOST_NAME = re.compile(r"(?=.{1,253}\Z)(?:(?!-)[a-z0-9_-]{1,63}(?<!-)\.)+(?!-)[a-z0-9-]{2,63}(?<!-)\.?\Z")


class OutboundRefused(InvalidInput):
    """The address is not one that this installation calls. Raised before any byte is sent."""

    code = "address_not_allowed"


def is_public(address: IPAddress) -> bool:
    """Return whether an address is ordinary public internet; everything that tunnels to or embeds another address is
    not."""
    if isinstance(address, ipaddress.IPv4Address):
        return not any(address in net for net in _NOT_PUBLIC_V4) and address.is_global
    return (
        address.scope_id is None
        and address in _PUBLIC_V6
        and not any(address in net for net in _NOT_PUBLIC_V6)
        and address.is_global
    )


def origin_of(url: httpx.URL) -> str:
    """`scheme://host:port` with the port always written out."""
    port = {"http": 80, "https": 443}.get(url.scheme, 0) if url.port is None else url.port
    host = f"[{url.host}]" if ":" in url.host else url.host
    return f"{url.scheme}://{host}:{port}"


def check_url(url: str | httpx.URL, *, allowed_origins: Iterable[str] = ()) -> httpx.URL:
    """The URL, parsed, if its text alone allows a call; raises OutboundRefused. No DNS: what a name resolves to is
    judged on connecting."""
    try:
        parsed = httpx.URL(url)
        host, origin = parsed.raw_host.decode("ascii"), origin_of(parsed)  # reading an xn-- name may fail too
    except (httpx.InvalidURL, UnicodeError, ValueError) as wrong:
        raise OutboundRefused(
            "This is not a URL that can be called; use one like https://llm.example.com/v1."
        ) from wrong
    if parsed.userinfo:
        raise OutboundRefused("A URL with user:password@ is not called; send credentials as an API key.")
    if any(ord(c) <= 32 or c == "\\" for c in str(url)):
        raise OutboundRefused("The URL holds spaces, control characters or a backslash; remove them.")
    if origin in {origin_of(httpx.URL(origin)) for origin in allowed_origins}:
        return parsed
    if parsed.scheme != "https":
        raise OutboundRefused("Only https addresses are called; the operator of this installation can allow others.")
    if (443 if parsed.port is None else parsed.port) not in PORTS:
        raise OutboundRefused("Only ports 443 and 8443 are called; the operator of this installation can allow others.")
    literal = literal_address(host)
    if literal is None and not _HOST_NAME.match(host.lower()):
        raise OutboundRefused("The host is neither a full domain name nor a plain IP address; write it in full.")
    if literal is None and host.rstrip(".").rsplit(".", 1)[-1].isdigit():
        raise OutboundRefused("The host is a look-alike of an IP address; write it in full.")
    if literal is not None and not is_public(literal):
        raise OutboundRefused(
            "The address is not on the public internet; the operator of this installation can allow its origin."
        )
    return parsed


def literal_address(host: str) -> IPAddress | None:
    try:
        return ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return None
