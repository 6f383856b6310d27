"""Ports that a server can still bind minutes after they were chosen."""

import socket
import sys
from pathlib import Path

import pytest

from deploy.embedded import ports
from deploy.embedded.faults import CannotStart
from deploy.embedded.ports import HOST, free_ports
from deploy.embedded.processes import ChildSpec, spawn, wait_until_ready


def test_no_port_is_given_twice_and_none_that_a_connection_may_get() -> None:
    drawn = [port for _ in range(10) for port in free_ports(3)]
    assert len(set(drawn)) == 30
    with socket.create_server((HOST, 0)) as server, socket.create_connection(server.getsockname()) as client:
        assert max(drawn) < min(server.getsockname()[1], client.getsockname()[1])


def test_a_port_that_is_listened_on_is_passed_over() -> None:
    (first,) = free_ports(1)
    with socket.create_server((HOST, first + 1)):
        assert free_ports(1) != (first + 1,)


def test_a_kernel_that_gives_low_ports_to_connections_leaves_the_range_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = tmp_path / "ip_local_port_range"
    monkeypatch.setattr(ports, "_EPHEMERAL", told)
    assert 20_000 <= free_ports(1)[0] < 32_768  # no such file, as on other systems
    told.write_text("1024\t65535\n")
    assert 20_000 <= free_ports(1)[0] < 32_768
    told.write_text("25000\t60999\n")
    assert 20_000 <= free_ports(1)[0] < 25_000


def test_where_all_are_taken_a_sentence_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "is_free", lambda port: False)
    with pytest.raises(CannotStart, match="no 2 are free"):
        free_ports(2)


def test_a_server_whose_port_was_taken_meanwhile_is_said_to_have_met_it(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    spec = ChildSpec(
        name="web",
        command=(sys.executable, "-c", "print('thread main panicked'); print('54: _start'); raise SystemExit(1)"),
        env={},
        cwd=tmp_path,
        log=tmp_path / "web.log",
        port=port,
        is_ready=lambda: False,
    )
    with socket.create_server((HOST, port)), pytest.raises(CannotStart) as caught:
        wait_until_ready(spawn(spec))
    assert f"port {port} on 127.0.0.1 is in use by another program" in str(caught.value)
    with pytest.raises(CannotStart, match="_start"):
        wait_until_ready(spawn(spec))
