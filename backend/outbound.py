"""How kolm calls addresses that customers name (teacher base URLs, webhook endpoints): the one transport between
their URL and our network.

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

import contextlib
import http.cookiejar
import ipaddress
import queue
import re
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import httpcore
import httpx

from backend.domain.errors import InvalidInput

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
Resolver = Callable[[str, int], Sequence[str]]

PORTS = frozenset({443, 8443})
CONNECT_S = 5.0
POLL_S = 0.25

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
    """The address is not one that this deployment calls. Raised before any byte is sent."""

    code = "address_not_allowed"


class OutboundTimeout(Exception):
    """The watch's deadline passed."""


class OutboundCanceled(Exception):
    """The watch's `cancelled()` turned true."""


class BodyTooLarge(Exception):
    """More body than the caller's cap; what was read is dropped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """When to stop waiting: `deadline_at` on the monotonic clock, or `cancelled()`."""

    deadline_at: float
    cancelled: Callable[[], bool] = lambda: False

    def slice_s(self) -> float:
        """How long the next wait may be; raises when there is nothing left to wait for."""
        if self.cancelled():
            raise OutboundCanceled
        left = self.deadline_at - time.monotonic()
        if left <= 0:
            raise OutboundTimeout
        return min(left, POLL_S)


_watch: ContextVar[Watch | None] = ContextVar("kolm_outbound_watch", default=None)


@contextlib.contextmanager
def watching(watch: Watch) -> Iterator[None]:
    """Every wait of this transport inside the block obeys `watch`."""
    token = _watch.set(watch)
    try:
        yield
    finally:
        _watch.reset(token)


def _current_watch() -> Watch:
    return _watch.get() or Watch(deadline_at=time.monotonic() + 30.0)


def is_public(address: IPAddress) -> bool:
    """Whether an address is ordinary public internet; everything that tunnels to or embeds another address is not."""
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
        host = parsed.raw_host.decode("ascii")
    except (httpx.InvalidURL, UnicodeError, ValueError) as wrong:
        raise OutboundRefused("This is not a URL that can be called.") from wrong
    if parsed.userinfo:
        raise OutboundRefused("A URL with user:password@ is not called; send credentials as an API key.")
    if any(ord(c) <= 32 or c == "\\" for c in str(url)):
        raise OutboundRefused("The URL holds spaces, control characters or a backslash.")
    if origin_of(parsed) in {origin_of(httpx.URL(origin)) for origin in allowed_origins}:
        return parsed
    if parsed.scheme != "https":
        raise OutboundRefused("Only https addresses are called.")
    if (443 if parsed.port is None else parsed.port) not in PORTS:
        raise OutboundRefused("Only ports 443 and 8443 are called.")
    literal = _literal(host)
    if literal is None and not _HOST_NAME.match(host.lower()):
        raise OutboundRefused("The host is neither a full domain name nor a plain IP address.")
    if literal is None and host.rstrip(".").rsplit(".", 1)[-1].isdigit():
        raise OutboundRefused("The host is a look-alike of an IP address; write it in full.")
    if literal is not None and not is_public(literal):
        raise OutboundRefused(
            "The address is not on the public internet; this deployment does not call private addresses."
        )
    return parsed


def _literal(host: str) -> IPAddress | None:
    try:
        return ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return None


def system_resolver(host: str, port: int) -> Sequence[str]:
    """Every address the name has, as the operating system answers."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return tuple(dict.fromkeys(str(entry[4][0]) for entry in found))


def resolve(host: str, port: int, *, resolver: Resolver, private_allowed: bool, watch: Watch) -> tuple[IPAddress, ...]:
    """The addresses of `host`, none of which is private unless that is allowed; raises OutboundRefused,
    httpcore.ConnectError."""
    literal = _literal(host)
    names = (host.strip("[]"),) if literal is not None else _resolve_in_thread(host, port, resolver, watch)
    try:
        addresses = tuple(ipaddress.ip_address(name) for name in names)
    except ValueError as wrong:
        raise OutboundRefused("The name resolves to something that is not a plain address.") from wrong
    if not addresses:
        raise httpcore.ConnectError("the name has no address")
    if not private_allowed and not all(is_public(address) for address in addresses):
        raise OutboundRefused("The name resolves to an address that is not on the public internet.")
    return addresses


def _resolve_in_thread(host: str, port: int, resolver: Resolver, watch: Watch) -> Sequence[str]:
    """getaddrinfo cannot be interrupted, so it waits elsewhere and may be left behind."""
    answers: queue.SimpleQueue[Sequence[str] | Exception] = queue.SimpleQueue()

    def ask() -> None:
        try:
            answers.put(resolver(host, port))
        except Exception as failed:  # noqa: BLE001 - carried to the waiting thread, whatever it is
            answers.put(failed)

    threading.Thread(target=ask, daemon=True, name="outbound-dns").start()
    while True:
        with contextlib.suppress(queue.Empty):
            answer = answers.get(timeout=watch.slice_s())
            if isinstance(answer, Exception):
                raise httpcore.ConnectError("the name could not be resolved") from answer
            return answer


class _Stream(httpcore.NetworkStream):
    """A non-blocking socket whose every wait is cut into slices, so that deadline and cancel are seen."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def _retry(self, act: Callable[[], Any]) -> Any:
        while True:
            try:
                return act()
            except (ssl.SSLWantReadError, BlockingIOError):
                wait_for(self._sock, reading=True)
            except ssl.SSLWantWriteError:
                wait_for(self._sock, reading=False)

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        try:
            return bytes(self._retry(lambda: self._sock.recv(max_bytes)))
        except OSError as broken:
            raise httpcore.ReadError("the connection broke") from broken

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        view = memoryview(buffer)
        try:
            while view:
                try:
                    view = view[self._sock.send(view) :]
                except (ssl.SSLWantWriteError, BlockingIOError):
                    wait_for(self._sock, reading=False)
                except ssl.SSLWantReadError:
                    wait_for(self._sock, reading=True)
        except OSError as broken:
            raise httpcore.WriteError("the connection broke") from broken

    def close(self) -> None:
        self._sock.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        secured = ssl_context.wrap_socket(
            self._sock, server_hostname=server_hostname, do_handshake_on_connect=False, suppress_ragged_eofs=False
        )
        stream = _Stream(secured)
        try:
            stream._retry(secured.do_handshake)
        except BaseException as failed:
            stream.close()  # wrapping took the descriptor out of self._sock
            if isinstance(failed, OSError):
                raise httpcore.ConnectError("no TLS connection") from failed
            if isinstance(failed, OutboundTimeout):
                raise httpcore.ConnectTimeout("the deadline passed while connecting") from failed
            raise
        return stream

    def get_extra_info(self, info: str) -> Any:
        if info == "is_readable":  # asked of an idle connection: readable means the other side closed it
            return self._sock.fileno() < 0 or bool(select.select([self._sock], [], [], 0)[0])
        return {"socket": self._sock, "ssl_object": self._sock if isinstance(self._sock, ssl.SSLSocket) else None}.get(
            info
        )


def wait_for(sock: socket.socket, *, reading: bool) -> None:
    seconds = _current_watch().slice_s()
    select.select([sock] if reading else [], [] if reading else [sock], [], seconds)


class PinnedBackend(httpcore.NetworkBackend):
    """Opens sockets to checked addresses only. `allowed_hosts` are (host, port) pairs that may be private."""

    def __init__(self, *, resolver: Resolver, allowed_hosts: frozenset[tuple[str, int]]) -> None:
        self._resolver = resolver
        self._allowed_hosts = allowed_hosts

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        watch = _current_watch()
        private_allowed = (host, port) in self._allowed_hosts
        failed: OSError | None = None
        try:
            for address in resolve(host, port, resolver=self._resolver, private_allowed=private_allowed, watch=watch):
                try:
                    return _Stream(_connect(address, port))
                except OSError as refused:
                    failed = refused
        except OutboundTimeout as late:
            raise httpcore.ConnectTimeout("the deadline passed while connecting") from late
        raise httpcore.ConnectError("no address answered") from failed

    def connect_unix_socket(
        self, path: str, timeout: float | None = None, socket_options: Any = None
    ) -> httpcore.NetworkStream:
        raise OutboundRefused("Unix sockets are not called.")


def _connect(address: IPAddress, port: int) -> socket.socket:
    sock = socket.socket(socket.AF_INET if address.version == 4 else socket.AF_INET6, socket.SOCK_STREAM)
    give_up_at = time.monotonic() + CONNECT_S
    try:
        sock.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            sock.connect((str(address), port))
        while not select.select([], [sock], [], _current_watch().slice_s())[1]:
            if time.monotonic() > give_up_at:
                raise TimeoutError("no answer to the connection attempt")
        code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise OSError(code, "connection failed")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except BaseException:
        sock.close()
        raise
    return sock


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
        context = verify if isinstance(verify, ssl.SSLContext) else httpx.create_ssl_context(verify, trust_env=False)
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
        raise BodyTooLarge("the body is compressed although that was not accepted")
    if response.headers.get("content-length", "").isdigit() and int(response.headers["content-length"]) > cap:
        raise BodyTooLarge(f"the body is longer than {cap} bytes")
    parts: list[bytes] = []
    size = 0
    for chunk in response.iter_raw():
        size += len(chunk)
        if size > cap:
            raise BodyTooLarge(f"the body is longer than {cap} bytes")
        parts.append(chunk)
        _current_watch().slice_s()
    return b"".join(parts)
