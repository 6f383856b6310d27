"""Sockets to checked addresses, whose every wait can be ended by a deadline or a cancel."""

import contextlib
import ipaddress
import queue
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

from backend.outbound.addresses import IPAddress, OutboundRefused, is_public, literal_address

Resolver = Callable[[str, int], Sequence[str]]

CONNECT_S = 5.0
POLL_S = 0.25


class OutboundTimeout(Exception):
    """The watch's deadline passed."""


class OutboundCanceled(Exception):
    """The watch's `cancelled()` turned true."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """The conditions to stop waiting: `deadline_at` on the monotonic clock, or `cancelled()`."""

    deadline_at: float
    cancelled: Callable[[], bool] = lambda: False

    def slice_s(self) -> float:
        """Return how long the next wait may be; raises when there is nothing left to wait for."""
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


def current_watch() -> Watch:
    return _watch.get() or Watch(deadline_at=time.monotonic() + 30.0)


def system_resolver(host: str, port: int) -> Sequence[str]:
    """Every address the name has, as the operating system answers."""
    addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return tuple(dict.fromkeys(str(entry[4][0]) for entry in addresses))


def resolve(host: str, port: int, *, resolver: Resolver, private_allowed: bool, watch: Watch) -> tuple[IPAddress, ...]:
    """The addresses of `host`, none of which is private unless that is allowed; raises OutboundRefused,
    httpcore.ConnectError."""
    literal = literal_address(host)
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
                unresolved = httpcore.ConnectError("the name could not be resolved")
                unresolved.__context__ = answer  # httpcore drops a cause on the way
                raise unresolved
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
                wait_for(self._sock, select.POLLIN)
            except ssl.SSLWantWriteError:
                wait_for(self._sock, select.POLLOUT)

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
                    wait_for(self._sock, select.POLLOUT)
                except ssl.SSLWantReadError:
                    wait_for(self._sock, select.POLLIN)
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
            return self._sock.fileno() < 0 or is_ready(self._sock, select.POLLIN, 0)
        return {"socket": self._sock, "ssl_object": self._sock if isinstance(self._sock, ssl.SSLSocket) else None}.get(
            info
        )


def wait_for(sock: socket.socket, event: int) -> None:
    """One slice of waiting; the caller tries again and comes back."""
    is_ready(sock, event, current_watch().slice_s())


def is_ready(sock: socket.socket, event: int, seconds: float) -> bool:
    poller = select.poll()  # select() cannot take descriptors above 1023
    poller.register(sock, event)
    return bool(poller.poll(seconds * 1000))


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
        watch = current_watch()
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
        while not is_ready(sock, select.POLLOUT, current_watch().slice_s()):
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
