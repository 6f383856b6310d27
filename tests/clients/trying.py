"""The harness of the `try_*` modules: it runs in .venv-clients, keeps the process on loopback, and prints what worked.

    python -m tests.clients.try_instructor WORK.json

WORK names "orders" and "mails" (the servers' addresses), "mails_model", "mail" and "label" (an input and its answer).
"""

import importlib.metadata
import json
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

# before a client is imported: no traces, no price lists from the network, no tokenizer downloads
SWITCHES = {
    "DO_NOT_TRACK": "1",
    "LANGSMITH_TRACING": "false",
    "LANGCHAIN_TRACING_V2": "false",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_MODE": "PRODUCTION",
    "HF_HUB_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
}
ORDER_TEXT = "please send a chair to Porto at once"
ORDER = {"item": "chair", "city": "Porto", "urgency": "soon"}
LOOPBACK = ("127.0.0.1", "::1", "localhost")

left: list[str] = []  # the addresses beyond loopback that somebody asked for


def prepare() -> dict[str, Any]:
    """Set the switches, forbid every other address, and read WORK."""
    os.environ.update(SWITCHES)
    look_up, connect = socket.getaddrinfo, socket.socket.connect

    def looked_up(host: Any, *args: Any, **more: Any) -> Any:
        name = host.decode() if isinstance(host, bytes) else host
        if name is not None and name not in LOOPBACK:
            left.append(str(name))
            raise OSError(f"{name} is not loopback")
        return look_up(host, *args, **more)

    def connected(self: socket.socket, address: Any) -> Any:
        if isinstance(address, tuple) and address[0] not in LOOPBACK:
            left.append(str(address[0]))
            raise OSError(f"{address[0]} is not loopback")
        return connect(self, address)

    socket.getaddrinfo = looked_up
    socket.socket.connect = connected  # type: ignore[method-assign]
    return dict(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))


def report(package: str, checks: dict[str, Callable[[], None]]) -> None:
    """Try each check; a failure is its error's first words."""
    rows = []
    for name, check in checks.items():
        try:
            check()
        except Exception as error:  # noqa: BLE001 - whatever a client raises is what is reported
            rows.append({"check": name, "fault": f"{type(error).__name__}: {error}"[:400]})
        else:
            rows.append({"check": name, "fault": ""})
    rows.append({"check": "asks for no address but the server's", "fault": ", ".join(left)})
    print(json.dumps({"package": package, "version": importlib.metadata.version(package), "rows": rows}))


def equal(value: Any, wanted: Any) -> None:
    if value != wanted:
        raise AssertionError(f"{value!r} is not {wanted!r}")


def refused(call: Callable[[], Any], words: str) -> None:
    """The call ends with a 400 whose message has the words."""
    try:
        call()
    except Exception as error:
        is_400 = getattr(error, "status_code", None) == 400 or "400" in str(error)
        if not is_400 or words not in str(error):
            raise
        return
    raise AssertionError("it was not refused")
