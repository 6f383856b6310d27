"""T16: what the outbound transport refuses, checked at the socket: a spy counts every connection that is really
opened."""

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from backend.outbound import (
    BodyTooLarge,
    IPAddress,
    OutboundCanceled,
    OutboundRefused,
    OutboundTimeout,
    PinnedBackend,
    Watch,
    check_url,
    open_client,
    read_capped,
    sockets,
    watching,
)

HOSTILE_URLS = [
    "http://example.com/v1",  # not https
    "ftp://example.com/",
    "file:///etc/passwd",
    "gopher://example.com/",
    "//example.com/",
    "https:///v1",
    "not a url",
    "",
    "https://example.com:22/",
    "https://example.com:8080/",
    "https://example.com:0/",
    "https://user:pass@example.com/",
    "https://example.com@10.0.0.1/",
    "https://localhost/",
    "https://intranet/",
    "https://127.0.0.1/",
    "https://127.1/",
    "https://127.0.1/",
    "https://2130706433/",  # decimal
    "https://0x7f000001/",  # hex
    "https://0x7f.0.0.1/",
    "https://0177.0.0.1/",  # octal
    "https://0/",
    "https://0.0.0.0/",
    "https://10.1.2.3/",
    "https://172.16.0.1/",
    "https://192.168.1.1/",
    "https://100.64.0.1/",  # carrier-grade NAT
    "https://100.100.100.200/",  # Alibaba's metadata
    "https://169.254.169.254/latest/meta-data/",
    "https://168.63.129.16/",  # Azure's wire server: a public address that is not
    "https://192.0.0.192/",  # Oracle's metadata
    "https://192.88.99.1/",
    "https://198.18.0.1/",
    "https://224.0.0.1/",
    "https://255.255.255.255/",
    "https://[::]/",
    "https://[::1]/",
    "https://[::ffff:127.0.0.1]/",
    "https://[::ffff:8.8.8.8]/",
    "https://[::127.0.0.1]/",
    "https://[64:ff9b::7f00:1]/",  # NAT64
    "https://[64:ff9b:1::1]/",
    "https://[2002:7f00:1::]/",  # 6to4
    "https://[2001:0:7f00:1::]/",  # Teredo
    "https://[fe80::1]/",
    "https://[fe80::1%25eth0]/",
    "https://[fec0::1]/",
    "https://[fd00:ec2::254]/",  # AWS's metadata over IPv6
    "https://[ff02::1]/",
    "https://[2001:db8::1]/",
    "https://example.com\\@127.0.0.1/",
    "https://exa mple.com/",
    "https://example.com\r\nx: y/",
    "https://１２７.０.０.１/",  # full-width digits
    "https://127。0。0。1/",
]

HOSTILE_ANSWERS = [
    ["127.0.0.1"],
    ["10.0.0.7"],
    ["169.254.169.254"],
    ["::1"],
    ["::ffff:10.0.0.1"],
    ["64:ff9b::a00:1"],
    ["2002:a00:1::"],
    ["fe80::1%lo"],
    ["fd00::1"],
    ["100.64.3.3"],
    ["93.184.216.34", "127.0.0.1"],  # one good address does not redeem the other
    ["nonsense"],
]


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every address a socket was really asked for."""
    opened: list[str] = []
    connect = sockets._connect

    def spy(address: IPAddress, port: int) -> socket.socket:
        opened.append(f"{address}:{port}")
        return connect(address, port)

    monkeypatch.setattr(sockets, "_connect", spy)
    return opened


def no_dns(host: str, port: int) -> Sequence[str]:
    raise AssertionError(f"{host} was resolved")


@pytest.mark.parametrize("url", HOSTILE_URLS)
def test_a_hostile_url_opens_no_connection(url: str, connections: list[str]) -> None:
    with pytest.raises(OutboundRefused):
        check_url(url)
    with (
        open_client(resolver=no_dns) as client,
        watching(Watch(deadline_at=time.monotonic() + 5)),
        contextlib.suppress(httpx.InvalidURL, httpx.UnsupportedProtocol, OutboundRefused),
    ):
        client.post(url)
        pytest.fail("the call went out")
    assert connections == []


@pytest.mark.parametrize("answers", HOSTILE_ANSWERS)
def test_a_name_that_resolves_inside_opens_no_connection(answers: list[str], connections: list[str]) -> None:
    with (
        open_client(resolver=lambda host, port: answers) as client,
        watching(Watch(deadline_at=time.monotonic() + 5)),
        pytest.raises(OutboundRefused),
    ):
        client.get("https://teacher.example.com/v1")
    assert connections == []


@pytest.mark.parametrize(
    "url",
    [
        "https://example.com/v1",
        "https://api.example.co.uk:8443/x?y=1",
        "https://93.184.216.34/",
        "https://[2606:4700::1111]/",
    ],
)
def test_an_ordinary_url_passes(url: str) -> None:
    assert str(check_url(url)) == url


def test_a_second_dns_answer_is_never_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rebinding: the first answer is public, every later one would be loopback. The socket goes to the first."""
    answers = iter([["93.184.216.34"], ["127.0.0.1"]])
    opened: list[str] = []

    def refuse(address: IPAddress, port: int) -> socket.socket:
        opened.append(str(address))
        raise ConnectionRefusedError

    monkeypatch.setattr(sockets, "_connect", refuse)
    with (
        open_client(resolver=lambda host, port: next(answers)) as client,
        watching(Watch(deadline_at=time.monotonic() + 5)),
    ):
        with pytest.raises(httpx.ConnectError):
            client.get("https://rebinding.example.com/")
        assert opened == ["93.184.216.34"]
        with pytest.raises(OutboundRefused):  # a new connection judges the new answer
            client.get("https://rebinding.example.com/")
    assert opened == ["93.184.216.34"]


class Receiver:
    """A raw loopback server: `answer` gets each connected socket. Counts connections; ends with the block."""

    def __init__(
        self, answer: bytes, *, hold_s: float = 0.0, drip_s: float = 0.0, tls: ssl.SSLContext | None = None
    ) -> None:
        self._tls = tls
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._answer, self._hold_s, self._drip_s = answer, hold_s, drip_s
        self.n_connections = 0
        self.requests: list[bytes] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._serve)
        self.origin = f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> "Receiver":
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._over.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(5)
        assert not self._thread.is_alive()

    def _serve(self) -> None:
        while not self._over.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.n_connections += 1
            connection.settimeout(5)
            if self._tls is not None:
                try:
                    connection = self._tls.wrap_socket(connection, server_side=True)
                except OSError:
                    continue
            with connection, contextlib.suppress(OSError):
                self.requests.append(connection.recv(65536))
                self._over.wait(self._hold_s)
                step = 1 if self._drip_s else len(self._answer)
                for at in range(0, len(self._answer), max(1, step)):
                    connection.sendall(self._answer[at : at + step])
                    if self._drip_s and self._over.wait(self._drip_s):
                        return


OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nset-cookie: a=b\r\nconnection: close\r\n\r\nok"


@contextlib.contextmanager
def client_of(receiver: Receiver) -> Iterator[httpx.Client]:
    with open_client(allowed_origins=frozenset({receiver.origin})) as client:
        yield client


def test_an_allowed_private_origin_is_called_and_no_other_port_beside_it() -> None:
    with Receiver(OK) as receiver, client_of(receiver) as client, watching(Watch(deadline_at=time.monotonic() + 5)):
        assert client.get(receiver.origin + "/v1").text == "ok"
        with pytest.raises(OutboundRefused):
            client.get("http://127.0.0.1:1/v1")
        with pytest.raises(OutboundRefused):
            client.get(receiver.origin.replace("127.0.0.1", "localhost"))
        assert receiver.n_connections == 1


def test_redirects_are_not_followed_and_cookies_not_kept(connections: list[str]) -> None:
    head = b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:9/x\r\nset-cookie: a=b\r\n"
    away = head + b"content-length: 0\r\nconnection: close\r\n\r\n"
    with Receiver(away) as receiver, client_of(receiver) as client, watching(Watch(deadline_at=time.monotonic() + 5)):
        assert client.get(receiver.origin).status_code == 302
        client.get(receiver.origin)
        assert all(b"cookie" not in request.lower() for request in receiver.requests)
        assert len(connections) == receiver.n_connections == 2


def test_proxies_of_the_environment_are_ignored(monkeypatch: pytest.MonkeyPatch, connections: list[str]) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:3128")
    with Receiver(OK) as receiver, client_of(receiver) as client, watching(Watch(deadline_at=time.monotonic() + 5)):
        assert client.get(receiver.origin).text == "ok"
        assert [f"http://{c}" for c in connections] == [receiver.origin]


def test_the_check_runs_in_the_pool_that_opens_the_sockets() -> None:
    """PinnedTransport replaces a private attribute of httpx's transport; this fails when httpx renames it."""
    with open_client() as client:
        assert isinstance(client._transport._pool._network_backend, PinnedBackend)  # type: ignore[attr-defined]


def test_a_slow_drip_ends_at_the_deadline() -> None:
    with Receiver(OK, drip_s=0.1) as receiver, client_of(receiver) as client:
        started = time.monotonic()
        with watching(Watch(deadline_at=started + 1.0)), pytest.raises(OutboundTimeout):
            client.get(receiver.origin)
        assert time.monotonic() - started > 0.9


def test_a_stalled_call_ends_soon_after_cancel() -> None:
    cancel = threading.Event()
    with Receiver(OK, hold_s=20) as receiver, client_of(receiver) as client:
        timer = threading.Timer(0.3, cancel.set)
        timer.start()
        started = time.monotonic()
        with watching(Watch(deadline_at=started + 20, cancelled=cancel.is_set)), pytest.raises(OutboundCanceled):
            client.get(receiver.origin)
        assert time.monotonic() - started < 10
        timer.join()


def test_a_name_server_that_hangs_does_not_outlast_the_deadline() -> None:
    over = threading.Event()

    def hang(host: str, port: int) -> Sequence[str]:
        over.wait(30)
        return ["93.184.216.34"]

    started = time.monotonic()
    with (
        open_client(resolver=hang) as client,
        watching(Watch(deadline_at=started + 0.5)),
        pytest.raises(httpx.ConnectTimeout),
    ):
        client.get("https://example.com/")
    assert time.monotonic() - started < 15
    over.set()


@pytest.mark.parametrize(
    "head",
    [
        b"content-length: 100000\r\n",
        b"content-encoding: gzip\r\ncontent-length: 10\r\n",
        b"transfer-encoding: chunked\r\n",
    ],
)
def test_a_body_beyond_the_cap_is_not_read(head: bytes) -> None:
    body = b"fffff\r\n" + b"x" * 0xFFFFF if b"chunked" in head else b"x" * 100000
    answer = b"HTTP/1.1 200 OK\r\n" + head + b"\r\n" + body
    with (
        Receiver(answer) as receiver,
        client_of(receiver) as client,
        watching(Watch(deadline_at=time.monotonic() + 5)),
        client.stream("GET", receiver.origin) as response,
        pytest.raises(BodyTooLarge),
    ):
        read_capped(response, cap=1000)


def issue_certificate(folder: Path, name: str) -> Path:
    """A self-signed certificate for `name` with its key, in one PEM file."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path = folder / "server.pem"
    path.write_bytes(secret + certificate.public_bytes(serialization.Encoding.PEM))
    return path


@pytest.mark.parametrize(("called", "is_trusted"), [("teacher.example.com", True), ("other.example.com", False)])
def test_tls_checks_the_certificate_against_the_name_and_not_the_pinned_address(
    tmp_path: Path, called: str, is_trusted: bool
) -> None:
    pem = issue_certificate(tmp_path, "teacher.example.com")
    server_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_side.load_cert_chain(pem)
    with Receiver(OK, tls=server_side) as receiver:
        origin = f"https://{called}:{receiver.origin.rsplit(':', 1)[1]}"
        with (
            open_client(
                allowed_origins=frozenset({origin}),
                resolver=lambda host, port: ["127.0.0.1"],
                verify=ssl.create_default_context(cafile=str(pem)),
            ) as client,
            watching(Watch(deadline_at=time.monotonic() + 5)),
        ):
            if is_trusted:
                assert client.get(origin).text == "ok"
            else:
                with pytest.raises(httpx.ConnectError):
                    client.get(origin)
                assert receiver.requests == []
