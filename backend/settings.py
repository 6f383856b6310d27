"""Django's settings, read from the environment once.

Every variable is read before the first fault is reported: a bad environment ends in one message that names all that
is wrong with it. `deploy/env.example` says what each variable means.
"""

import base64
import binascii
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import psycopg
from django.core.exceptions import ImproperlyConfigured
from psycopg.conninfo import conninfo_to_dict

ROOT = Path(__file__).resolve().parent.parent
T = TypeVar("T")


class _Environment:
    """Reads variables and keeps what was wrong with each, so that `check` can say all of it at once."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._variables = variables
        self._faults: list[str] = []

    def read(self, name: str, parse: Callable[[str], T], *, placeholder: T, default: str | None = None) -> T:
        """The parsed variable. `placeholder` stands in for a bad value only until `check` raises."""
        text = self._variables.get(name, "").strip() or default
        if text is None:
            self._faults.append(f"{name} is not set")
            return placeholder
        try:
            return parse(text)
        except ValueError as fault:
            self._faults.append(f"{name} {fault}")
            return placeholder

    def check(self) -> None:
        if self._faults:
            raise ImproperlyConfigured(
                "The environment is not complete: " + "; ".join(self._faults) + ". See deploy/env.example."
            )


def _secret(value: str) -> str:
    if len(value) < 32:
        raise ValueError(f"must have at least 32 characters, not {len(value)}")
    return value


def _url(value: str) -> str:
    if urlsplit(value).scheme not in ("http", "https") or not urlsplit(value).hostname:
        raise ValueError("must be an http:// or https:// address")
    return value.rstrip("/")


def _redis_url(value: str) -> str:
    if urlsplit(value).scheme not in ("redis", "rediss", "unix"):
        raise ValueError("must be a redis://, rediss:// or unix:// address")
    return value


def _postgres(value: str) -> dict[str, Any]:
    try:
        parts = conninfo_to_dict(value)
    except psycopg.ProgrammingError:
        raise ValueError("must be a postgresql:// address") from None
    if not parts.get("dbname"):
        raise ValueError("must name a database: postgresql://user:password@host:port/name")
    return parts


def _hex_key(value: str) -> bytes:
    try:
        key = bytes.fromhex(value)
    except ValueError:
        raise ValueError("must be hexadecimal") from None
    if len(key) != 32:
        raise ValueError(f"must be 32 bytes (64 hexadecimal digits), not {len(key)} bytes")
    return key


def _base64_key(value: str) -> str:
    try:
        key = base64.b64decode(value, validate=True)
    except binascii.Error:
        raise ValueError("must be base64") from None
    if len(key) != 32:
        raise ValueError(f"must be 32 bytes in base64, not {len(key)} bytes")
    return value


def _file(value: str) -> Path:
    if not Path(value).is_file():
        raise ValueError(f"names no file: {value}")
    return Path(value)


def _count(value: str) -> int:
    if not value.isdecimal():
        raise ValueError(f"must be a whole number, not {value[:20]!r}")
    return int(value)


def _positive(value: str) -> int:
    if _count(value) < 1:
        raise ValueError("must be at least 1")
    return _count(value)


def _origins(value: str) -> tuple[str, ...]:
    """ "0" is none; else `http://10.0.0.5:8000,http://127.0.0.1:8900`."""
    if value == "0":
        return ()
    origins = tuple(_url(part.strip()) for part in value.split(","))
    for origin in origins:
        if urlsplit(origin).path:
            raise ValueError(f"lists origins (scheme, host and port), not addresses with a path: {origin}")
    return origins


def _hosts(value: str) -> list[str]:
    return [host.strip() for host in value.split(",")]


def _role(value: str) -> str:
    if value not in ("app", "owner"):
        raise ValueError(f"must be app or owner, not {value[:20]!r}")
    return value


_env = _Environment(os.environ)

_DB_ROLE = _env.read("KOLM_DB_ROLE", _role, placeholder="app", default="app")
_POOL_SIZE = _env.read("KOLM_DB_POOL", _count, placeholder=0, default="8")
_DATABASE = _env.read(
    "DATABASE_OWNER_URL" if _DB_ROLE == "owner" else "DATABASE_URL", _postgres, placeholder={"dbname": ""}
)
REDIS_URL = _env.read("REDIS_URL", _redis_url, placeholder="")
SECRET_KEY = _env.read("KOLM_SECRET_KEY", _secret, placeholder="")
KOLM_TENANT_TOKEN_KEY = _env.read("KOLM_TENANT_TOKEN_KEY", _hex_key, placeholder=b"")
KOLM_SEALING_KEY = _env.read("KOLM_SEALING_KEY", _base64_key, placeholder="")
KOLM_SIGNING_KEY_FILE = _env.read("KOLM_SIGNING_KEY_FILE", _file, placeholder=ROOT)
KOLM_RUNNER_TOKEN = _env.read("KOLM_RUNNER_TOKEN", _secret, placeholder="")
KOLM_BLOB_DIR = _env.read("KOLM_BLOB_DIR", Path, placeholder=ROOT)
KOLM_PUBLIC_URL = _env.read("KOLM_PUBLIC_URL", _url, placeholder="http://localhost")
# The grammar teacher is a part of the embedded stack; a deployment without it leaves this out.
KOLM_GRAMMAR_URL = _env.read("KOLM_GRAMMAR_URL", _url, placeholder="") if os.environ.get("KOLM_GRAMMAR_URL") else ""
# Teachers on private addresses are refused but for these origins: "0", or a list such as http://10.0.0.5:8000,http://...
KOLM_ALLOW_PRIVATE_TEACHERS = _env.read("KOLM_ALLOW_PRIVATE_TEACHERS", _origins, placeholder=(), default="0")
KOLM_RUNNER_LEASE_S = _env.read("KOLM_RUNNER_LEASE_S", _positive, placeholder=30, default="30")
KOLM_COMPILE_LEASE_S = _env.read("KOLM_COMPILE_LEASE_S", _positive, placeholder=30, default="30")
ALLOWED_HOSTS = _env.read(
    "KOLM_ALLOWED_HOSTS",
    _hosts,
    placeholder=[],
    default=f"{urlsplit(KOLM_PUBLIC_URL).hostname},localhost,127.0.0.1,[::1]",
)
KOLM_RATE_PER_KEY = _env.read("KOLM_RATE_PER_KEY", _positive, placeholder=1200, default="1200")
KOLM_RATE_PER_TENANT = _env.read("KOLM_RATE_PER_TENANT", _positive, placeholder=3000, default="3000")
# What POST /v1/select takes as JSON lines; spooled to TMPDIR while it arrives, then read line by line.
KOLM_SELECT_BODY_BYTES = _env.read("KOLM_SELECT_BODY_BYTES", _positive, placeholder=1, default="512000000")
# The draft cache: how long a draft waits for its next compile, and how much one tenant may keep.
KOLM_DRAFT_TTL_DAYS = _env.read("KOLM_DRAFT_TTL_DAYS", _positive, placeholder=90, default="90")
KOLM_DRAFT_BYTES_PER_TENANT = _env.read("KOLM_DRAFT_BYTES_PER_TENANT", _positive, placeholder=1, default="268435456")
_env.check()

KOLM_VERSION = "2026-11-20"  # the dated API version that this code speaks
KOLM_JSON_BODY_BYTES = 1_000_000
KOLM_UPLOAD_BODY_BYTES = 5_000_000
KOLM_RUNNER_BODY_BYTES = 256_000_000  # checkpoints and adapters that runners send

DEBUG = False
ROOT_URLCONF = "backend.urls"
ASGI_APPLICATION = "backend.asgi.application"
USE_TZ = True
TIME_ZONE = "UTC"
USE_I18N = False
APPEND_SLASH = False
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DATA_UPLOAD_MAX_MEMORY_SIZE = None  # `backend.rest.body_limits` is the limit

# Each is a package of `backend` with models, and of `migrations`.
APPS = ["tenants", "usage", "drafts", "compiles", "artifacts", "runner_jobs", "selections"]

INSTALLED_APPS = [
    "django.contrib.contenttypes",
    "django.contrib.auth",
    "rest_framework",
    "drf_spectacular",
    *(f"backend.{app}" for app in APPS),
]
MIGRATION_MODULES = {app: f"migrations.{app}" for app in APPS}

MIDDLEWARE = [
    "backend.rest.request_ids.request_ids",
    "django.middleware.security.SecurityMiddleware",
    "django.middleware.http.ConditionalGetMiddleware",
    "backend.rest.body_limits.body_limits",
    "backend.tenants.last_use.last_use",
]


def _connection(parts: Mapping[str, Any]) -> dict[str, Any]:
    """Django's form of the address, with the limits of every session. Unknown parts go to libpq as they are."""
    options: dict[str, Any] = {
        k: v for k, v in parts.items() if k not in ("dbname", "user", "password", "host", "port")
    }
    limits = {"idle_in_transaction_session_timeout": "15s", "lock_timeout": "5s", "statement_timeout": "30s"}
    if _DB_ROLE == "owner":
        limits = {"lock_timeout": "5s"}  # building an index may take longer than any request
    settings = " ".join(f"-c {name}={value}" for name, value in limits.items())
    options["options"] = f"{options.get('options', '')} {settings}".strip()
    options.setdefault("connect_timeout", 5)
    options.setdefault("application_name", f"kolm-{_DB_ROLE}")
    if _POOL_SIZE and _DB_ROLE == "app":
        # Under ASGI each request runs in a thread of its own, so without a pool each would connect anew. A process
        # that forks after its first query (Celery's prefork) sets KOLM_DB_POOL=0: pools do not survive a fork.
        options["pool"] = {"min_size": 1, "max_size": _POOL_SIZE, "timeout": 5}
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parts["dbname"],
        "USER": parts.get("user", ""),
        "PASSWORD": parts.get("password", ""),
        "HOST": parts.get("host", ""),
        "PORT": parts.get("port", ""),
        "ATOMIC_REQUESTS": True,
        "CONN_HEALTH_CHECKS": True,  # after a restart of Postgres the pool would hand out its dead connections first
        "OPTIONS": options,
    }


DATABASES = {"default": _connection(_DATABASE)}

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": ["backend.tenants.auth.ApiKeyAuthentication"],
    "DEFAULT_PERMISSION_CLASSES": ["backend.tenants.auth.IsTenant"],
    "DEFAULT_THROTTLE_CLASSES": ["backend.rest.rate_limits.RateLimit"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["backend.rest.json_bodies.StrictJSONParser"],
    # No DEFAULT_PAGINATION_CLASS: lists are answered by `backend.rest.pagination.list_page`.
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "DEFAULT_CONTENT_NEGOTIATION_CLASS": "backend.rest.json_bodies.AlwaysJson",
    "EXCEPTION_HANDLER": "backend.rest.problems.exception_handler",
    "UNAUTHENTICATED_USER": None,
    "UNAUTHENTICATED_TOKEN": None,
    "TEST_REQUEST_DEFAULT_FORMAT": "json",
    "URL_FORMAT_OVERRIDE": None,
}

SPECTACULAR_SETTINGS = {
    "TITLE": "kolm",
    "DESCRIPTION": "Compile a task into a small model you own: a signed, verifiable .kolm.",
    "VERSION": KOLM_VERSION,
    "OAS_VERSION": "3.1.1",
    "SERVE_INCLUDE_SCHEMA": False,
    "COMPONENT_SPLIT_REQUEST": True,
    "SORT_OPERATIONS": True,
    "SCHEMA_PATH_PREFIX": "/v1",
    "SERVERS": [{"url": "/"}],
    "PREPROCESSING_HOOKS": ["backend.rest.openapi.public_endpoints"],
    # without drf-spectacular's own hook that names enums: every resource has an `object` with one value, and all
    # would collide
    "POSTPROCESSING_HOOKS": ["backend.compiles.openapi.describe_events", "backend.rest.openapi.describe_problems"],
}

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "filters": {"request_id": {"()": "backend.rest.log_lines.AddRequestId"}},
    "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(name)s %(request_id)s %(message)s"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line", "filters": ["request_id"]}},
    "root": {"handlers": ["stderr"], "level": "INFO"},
    # One line per 4xx says nothing that the access log does not.
    "loggers": {"django.request": {"level": "ERROR"}, "httpx": {"level": "WARNING"}},
}

SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "no-referrer"
