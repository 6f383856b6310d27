"""The loopback ports that the stack listens on."""

import socket

from deploy.embedded.faults import CannotStart

HOST = "127.0.0.1"


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
    """`n` different ports that were free a moment ago; all held open until the last is drawn."""
    probes = [socket.socket() for _ in range(n)]
    try:
        for probe in probes:
            probe.bind((HOST, 0))
        return tuple(int(probe.getsockname()[1]) for probe in probes)
    finally:
        for probe in probes:
            probe.close()


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
