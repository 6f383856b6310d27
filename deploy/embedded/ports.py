"""The loopback ports that the stack listens on."""

import os
import socket
from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path

from deploy.embedded.faults import CannotStart

HOST = "127.0.0.1"
_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST = 20_000  # below: the ports that people know by heart
_USUAL_EPHEMERAL = 32_768  # above: what kernels hand out
_BLOCK = 64  # ports to a process before it meets those of its neighbour
_steps = count()


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        # as servers do it: connections of an earlier run in TIME_WAIT do not count
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def free_ports(n: int) -> tuple[int, ...]:
    """`n` ports that are free, that no other call in this process draws, and that no connection gets: they lie below
    those that the kernel gives to whoever connects, since a server may only bind its own minutes after this. Processes
    that were started one after another begin apart from each other. Raises CannotStart when all are taken."""
    ports = tuple(islice(filter(is_free, _candidates()), n))
    if len(ports) < n:
        raise CannotStart(f"Of the ports from {_LOWEST} up on {HOST} no {n} are free: end what listens there.")
    return ports


def _candidates() -> Iterator[int]:
    """Every port of the range once, on from where the last call stopped."""
    n_ports = _first_ephemeral() - _LOWEST
    for _ in range(n_ports):
        yield _LOWEST + (os.getpid() * _BLOCK + next(_steps)) % n_ports


def _first_ephemeral() -> int:
    try:
        first = int(_EPHEMERAL.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        first = _USUAL_EPHEMERAL
    return first if _LOWEST + _BLOCK < first < _USUAL_EPHEMERAL else _USUAL_EPHEMERAL


def internal_port(preferred: int) -> int:
    """`preferred`, or any free one: nobody outside the stack needs to know the number."""
    return preferred if is_free(preferred) else free_ports(1)[0]


def public_port(port: int, variable: str) -> int:
    """`port`, or a sentence: people and scripts have this number in their hands, so it is never changed silently."""
    if not is_free(port):
        raise CannotStart(
            f"Port {port} on {HOST} is in use by another program: "
            f"end it, or choose another port, as in {variable}={port + 1} make up."
        )
    return port
