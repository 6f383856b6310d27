"""httpx over pinned sockets: the client that callers get, and the one way to read a body with it."""

import functools
import http.cookiejar
import ssl

import httpcore
import httpx

from backend.outbound.addresses import check_url, origin_of
from backend.outbound.sockets import PinnedBackend, Resolver, current_watch, system_resolver


class BodyTooLarge(Exception):
    """More body than the caller's cap; what was read is dropped."""


class BodyCompressed(BodyTooLarge):
    """A compressed body, which was not asked for and may swell."""


@functools.cache
def ssl_context(verify: bool) -> ssl.SSLContext:
    """One a process: reading the authorities' certificates takes as long as a request."""
    return httpx.create_ssl_context(verify, trust_env=False)


class PinnedTransport(httpx.HTTPTransport):
    """httpx's own transport over a PinnedBackend: URL rules before each request, address rules at each connection."""

    def __init__(
        self,
        *,
        allowed_origins: frozenset[str],
        resolver: Resolver,
        max_connections: int,
        verify: ssl.SSLContext | bool,
    ) -> None:
        context = verify if isinstance(verify, ssl.SSLContext) else ssl_context(verify)
        super().__init__(verify=context, trust_env=False)
        self._allowed_origins = allowed_origins
        allowed = [httpx.URL(origin_of(httpx.URL(origin))) for origin in allowed_origins]
        hosts = frozenset((u.host, u.port or {"http": 80, "https": 443}[u.scheme]) for u in allowed)
        self._pool.close()
        self._pool = httpcore.ConnectionPool(
            ssl_context=context,
            max_connections=max_connections,
            keepalive_expiry=15.0,
            network_backend=PinnedBackend(resolver=resolver, allowed_hosts=hosts),
        )

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        check_url(request.url, allowed_origins=self._allowed_origins)
        return super().handle_request(request)


def open_client(
    *,
    allowed_origins: frozenset[str] = frozenset(),
    resolver: Resolver = system_resolver,
    max_connections: int = 8,
    verify: ssl.SSLContext | bool = True,
) -> httpx.Client:
    """A client that can reach the public internet and `allowed_origins`, and nothing else."""
    transport = PinnedTransport(
        allowed_origins=allowed_origins, resolver=resolver, max_connections=max_connections, verify=verify
    )
    no_cookies = http.cookiejar.CookieJar(policy=http.cookiejar.DefaultCookiePolicy(allowed_domains=[]))
    return httpx.Client(
        transport=transport,
        trust_env=False,
        follow_redirects=False,
        cookies=no_cookies,
        headers={"accept-encoding": "identity", "user-agent": "kolm/1"},
        timeout=None,  # the watch is the clock
    )


def read_capped(response: httpx.Response, *, cap: int) -> bytes:
    """The body as sent, at most `cap` bytes of it; raises BodyTooLarge. A compressed body is refused: it was not
    asked for."""
    if response.headers.get("content-encoding", "identity").lower() not in {"", "identity"}:
        raise BodyCompressed("the body is compressed although that was not accepted")
    if response.headers.get("content-length", "").isdigit() and int(response.headers["content-length"]) > cap:
        raise BodyTooLarge(f"the body is longer than {cap} bytes")
    parts: list[bytes] = []
    size = 0
    for chunk in response.iter_raw():
        size += len(chunk)
        if size > cap:
            raise BodyTooLarge(f"the body is longer than {cap} bytes")
        parts.append(chunk)
        current_watch().slice_s()
    return b"".join(parts)
