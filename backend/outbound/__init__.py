"""The way in which kolm calls addresses that customers name (teacher base URLs, webhook endpoints): the one transport
between their URL and our network.

    with open_client(allowed_origins=frozenset()) as client, watching(Watch(deadline_at=..., cancelled=...)):
        with client.stream("POST", url, json=...) as response:
            body = read_capped(response, cap=2_000_000)

Rules, enforced where the socket is opened and not only where the URL is read:
- https on port 443 or 8443, no user:password@, no look-alike host names (decimal, hex or octal IPv4, zone ids);
- the name is resolved once, *every* address it has must be public, and the socket goes to one of those very
  addresses, so that a second, different DNS answer is never asked for (rebinding); TLS still checks the certificate
  against the name;
- no redirects, no proxies from the environment, no cookies, no compression (a small body cannot swell), no body
  beyond the caller's cap;
- a deadline over the whole exchange (slow drips count), and a cancel check about four times a second, in every wait.

`allowed_origins` ("http://127.0.0.1:8900") are the deployment's own exceptions: for them scheme, port and address
are not restricted. In production an egress proxy stands behind this; this file is the first wall, not the only one.
"""

from backend.outbound.addresses import IPAddress, OutboundRefused, check_url, is_public, origin_of
from backend.outbound.client import BodyCompressed, BodyTooLarge, open_client, read_capped
from backend.outbound.sockets import (
    OutboundCanceled,
    OutboundTimeout,
    PinnedBackend,
    Resolver,
    Watch,
    system_resolver,
    watching,
)

__all__ = [
    "BodyCompressed",
    "BodyTooLarge",
    "IPAddress",
    "OutboundCanceled",
    "OutboundRefused",
    "OutboundTimeout",
    "PinnedBackend",
    "Resolver",
    "Watch",
    "check_url",
    "is_public",
    "open_client",
    "origin_of",
    "read_capped",
    "system_resolver",
    "watching",
]
