"""The layout of the stack, what runs where: ports, addresses, and the environment each process gets. Nothing here
starts anything.

A process is told what it needs and no more: the runner and the grammar teacher get no database, broker or key; only
migrations connect as the owner.
"""

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from deploy.embedded import postgres, valkey
from deploy.embedded.credentials import Credentials
from deploy.embedded.home import ROOT, Home
from deploy.embedded.ports import HOST, internal_port, public_port


class Part(StrEnum):
    """The parts in starting order; they are stopped the other way round."""

    POSTGRES = "postgres"
    VALKEY = "valkey"
    GRAMMAR = "grammar"
    WEB = "web"
    WORKER = "worker"
    UPKEEP = "upkeep"
    DELIVERIES = "deliveries"
    RUNNER = "runner"
    SERVER = "server"


DATA: frozenset[Part] = frozenset({Part.POSTGRES, Part.VALKEY})
EVERYTHING: tuple[Part, ...] = tuple(Part)
DEFAULT_WEB_PORT = 8000
# The sender of webhooks listens nowhere: its port is the one on this machine that webhooks may go to (the demo's
# receiver, or yours).
PREFERRED = {Part.POSTGRES: 25432, Part.VALKEY: 26379, Part.GRAMMAR: 8011, Part.DELIVERIES: 8012, Part.SERVER: 8014}

# what any process on this machine may know: where programs and caches are, how to talk to people, whom to trust
SHARED = (
    "PATH",
    "HOME",
    "LANG",
    "LC_ALL",
    "TZ",
    "TMPDIR",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "PYTHONDONTWRITEBYTECODE",
    "USER",
)
# how a runner reaches a model hub, where the person who starts the stack lets it; nobody else does
HUB = (
    "HF_HUB_OFFLINE",
    "HF_TOKEN",
    "HF_ENDPOINT",
    "HTTPS_PROXY",
    "https_proxy",
    "NO_PROXY",
    "no_proxy",
    "KOLM_BASE_CACHE",
    "KOLM_BASE_CACHE_BYTES",
)
# which accelerators a runner or server may use, and where their driver is
ACCELERATOR = (
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "CUDA_HOME",
    "CUDA_PATH",
    "LD_LIBRARY_PATH",
    "NVIDIA_VISIBLE_DEVICES",
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",
)
# model code: one thread a process (two on a busy machine are slower than one), and no look-ups at a model hub: of all
# processes only runners and servers make some
MODELS = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "PYTHONUNBUFFERED": "1"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """`parts` are those that this stack starts; an address given from outside removes its server from them."""

    home: Home
    credentials: Credentials
    parts: tuple[Part, ...]
    ports: Mapping[Part, int]
    database_url: str
    database_owner_url: str
    redis_url: str
    public_url: str
    grammar_url: str
    variables: Mapping[str, str]

    def bare_environment(self) -> dict[str, str]:
        """No credential at all: servers, the grammar teacher."""
        return {name: self.variables[name] for name in SHARED if name in self.variables} | MODELS

    @property
    def local_url(self) -> str:
        """The web process as its neighbours reach it, whatever name it has outside."""
        port = self.ports.get(Part.WEB)
        return f"http://{HOST}:{port}" if port else self.public_url

    @property
    def webhook_origin(self) -> str:
        """The one address on this machine that webhooks may go to, "" where this stack sends none."""
        port = self.ports.get(Part.DELIVERIES)
        return f"http://{HOST}:{port}" if port else ""

    def runner_environment(self) -> dict[str, str]:
        own = {
            name: value for name, value in self.variables.items() if name.startswith(("KOLM_RUNNER_", "KOLM_OUTAGE_S"))
        }
        return self.bare_environment() | own | self._of_runners()

    def server_environment(self) -> dict[str, str]:
        """The serving runner: it keeps the usage it has not told yet, and fetched artifacts, in this home."""
        theirs = ("KOLM_SERVER_", "KOLM_MAX_BLOB_BYTES")
        own = {name: value for name, value in self.variables.items() if name.startswith(theirs)}
        settings = {
            "KOLM_SERVER_HOST": HOST,
            "KOLM_SERVER_PORT": str(self.ports[Part.SERVER]),
            "KOLM_SERVER_URL": f"http://{HOST}:{self.ports[Part.SERVER]}",
            "KOLM_SERVER_NAME": "embedded",
            "KOLM_SERVER_DIR": str(self.home.server),
            "KOLM_SERVER_RAM_DIR": str(self.home.server / "unpacked"),
        }
        return self.bare_environment() | own | settings | self._of_runners()

    def _of_runners(self) -> dict[str, str]:
        """Return where the backend is, whom to trust, where bases lie (those that `make base` trains, unless told
        otherwise, and what a hub gives unless HF_HUB_OFFLINE is set), and which accelerators there are."""
        inherited = {name: self.variables[name] for name in (*HUB, *ACCELERATOR) if name in self.variables}
        return {
            "HF_HUB_OFFLINE": "0",
            **inherited,
            "KOLM_API_URL": self.local_url,
            "KOLM_RUNNER_TOKEN": self.credentials.runner_token,
            "KOLM_KEYRING": str(self.home.keyring),
            "KOLM_BASE_DIR": self.variables.get("KOLM_BASE_DIR") or str(ROOT / "build" / "bases"),
        }

    def backend_environment(self) -> dict[str, str]:
        """The backend's processes and manage.py. What the caller sets (lease times, rates, proxies) is passed on."""
        inherited = {name: value for name, value in self.variables.items() if name != "DATABASE_OWNER_URL"}
        return inherited | MODELS | self.settings()

    def owner_environment(self) -> dict[str, str]:
        """Migrations only."""
        return self.backend_environment() | {"DATABASE_OWNER_URL": self.database_owner_url, "KOLM_DB_ROLE": "owner"}

    def settings(self) -> dict[str, str]:
        """Return what `backend.settings` reads of this installation."""
        keys = self.credentials
        return {
            "DATABASE_URL": self.database_url,
            "REDIS_URL": self.redis_url,
            "KOLM_SECRET_KEY": keys.django_secret_key,
            "KOLM_TENANT_TOKEN_KEY": keys.tenant_token_key,
            "KOLM_SEALING_KEY": keys.sealing_key,
            "KOLM_SEALING_KEYS_OTHER": ",".join(keys.sealing_keys_other),
            "KOLM_SIGNING_KEY_FILE": str(self.home.signing_key),
            "KOLM_SECRETS_FILE": str(self.home.secrets),
            "KOLM_RUNNER_TOKEN": keys.runner_token,
            "KOLM_BLOB_DIR": str(self.home.blobs),
            "KOLM_PUBLIC_URL": self.public_url,
            "KOLM_GRAMMAR_URL": self.grammar_url,
            "KOLM_ALLOW_PRIVATE_TEACHERS": self.variables.get("KOLM_ALLOW_PRIVATE_TEACHERS", "0"),
            "KOLM_ALLOW_PRIVATE_WEBHOOKS": self.variables.get("KOLM_ALLOW_PRIVATE_WEBHOOKS", self.webhook_origin)
            or "0",
            "KOLM_RUNNER_LEASE_S": self.variables.get("KOLM_RUNNER_LEASE_S", "30"),
            "KOLM_COMPILE_LEASE_S": self.variables.get("KOLM_COMPILE_LEASE_S", "30"),
            "KOLM_OUTAGE_S": self.variables.get("KOLM_OUTAGE_S", "600"),
            "KOLM_HOME": str(self.home.path),
            "KOLM_MAIL_URL": self.variables.get("KOLM_MAIL_URL") or f"dir:{self.home.path / 'mail'}",
            "KOLM_KEYRING": str(self.home.keyring),
            "DJANGO_SETTINGS_MODULE": "backend.settings",
        }

    def exports(self) -> dict[str, str]:
        """Return everything that a shell needs to use manage.py, tests or the `kolm` command against this stack."""
        return (
            self.settings() | MODELS | {"DATABASE_OWNER_URL": self.database_owner_url, "KOLM_API_URL": self.local_url}
        )


def plan(
    home: Home,
    credentials: Credentials,
    variables: Mapping[str, str],
    wanted: tuple[Part, ...],
    *,
    recorded: Mapping[str, int] | None = None,
    choose: Callable[[int], int] = internal_port,
) -> Layout:
    """Choose ports and addresses. `recorded` (the ports of a running stack) are taken as they are; others are looked
    for.

    Raises CannotStart when the web port, the one that people know, is taken."""
    parts = tuple(part for part in wanted if not _is_from_outside(part, variables))
    ports = _choose_ports(parts, variables, recorded or {}, choose)
    web_port = ports.get(Part.WEB, int(variables.get("KOLM_PORT") or DEFAULT_WEB_PORT))
    postgres_port, valkey_port = ports.get(Part.POSTGRES, 0), ports.get(Part.VALKEY, 0)
    app = postgres.url(postgres_port, "kolm_app", credentials.postgres_app_password)
    owner = postgres.url(postgres_port, "kolm_owner", credentials.postgres_owner_password)
    return Layout(
        home=home,
        credentials=credentials,
        parts=parts,
        ports=ports,
        database_url=variables.get("DATABASE_URL") or app,
        database_owner_url=_owner_from_outside(variables) or owner,
        redis_url=variables.get("REDIS_URL") or valkey.url(valkey_port, credentials.valkey_password),
        public_url=variables.get("KOLM_PUBLIC_URL") or f"http://{HOST}:{web_port}",
        grammar_url=variables.get("KOLM_GRAMMAR_URL")
        or f"http://{HOST}:{ports.get(Part.GRAMMAR, PREFERRED[Part.GRAMMAR])}/v1",
        variables=variables,
    )


def _is_from_outside(part: Part, variables: Mapping[str, str]) -> bool:
    outside = {Part.POSTGRES: "DATABASE_URL", Part.VALKEY: "REDIS_URL", Part.GRAMMAR: "KOLM_GRAMMAR_URL"}
    return bool(variables.get(outside.get(part, "")))


def _owner_from_outside(variables: Mapping[str, str]) -> str:
    """An owner's address alone is no database: it counts beside DATABASE_URL only."""
    app = variables.get("DATABASE_URL", "")
    return app and (variables.get("DATABASE_OWNER_URL") or app)


def _choose_ports(
    parts: tuple[Part, ...], variables: Mapping[str, str], recorded: Mapping[str, int], choose: Callable[[int], int]
) -> dict[Part, int]:
    ports: dict[Part, int] = {}
    for part in parts:
        if part in recorded:
            ports[part] = recorded[part]
        elif part is Part.WEB:
            ports[part] = public_port(int(variables.get("KOLM_PORT") or DEFAULT_WEB_PORT), "KOLM_PORT")
        elif part in PREFERRED:
            ports[part] = choose(PREFERRED[part])
    return ports


def python(*arguments: str) -> tuple[str, ...]:
    return (sys.executable, *arguments)


def environ() -> dict[str, str]:
    return dict(os.environ)
