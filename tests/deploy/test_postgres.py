"""The embedded database: who may do what in it, and the ways to run it as root."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from deploy.embedded import postgres
from deploy.embedded.credentials import load_or_create
from deploy.embedded.faults import CannotStart
from deploy.embedded.home import Home
from deploy.embedded.ports import free_ports
from deploy.embedded.processes import spawn, stop, wait_until_ready
from deploy.embedded.stack import EmbeddedServices
from tests.deploy.conftest import bare_environ
from tests.profiles import one_in


@pytest.fixture(scope="module")
def database() -> Iterator[dict[str, str]]:
    with EmbeddedServices(services=("postgres",), variables=bare_environ()) as services:
        yield services.env


def test_neither_role_is_superuser_or_bypasses_row_level_security(database: dict[str, str]) -> None:
    with psycopg.connect(database["DATABASE_URL"]) as connection:
        rows = connection.execute(
            "SELECT rolname, rolsuper, rolbypassrls, rolcreaterole, rolcreatedb FROM pg_roles"
            " WHERE rolname LIKE 'kolm%' ORDER BY 1"
        ).fetchall()
    assert rows == [("kolm_app", False, False, False, False), ("kolm_owner", False, False, False, True)]


def test_the_owner_owns_the_database_and_the_app_cannot_change_a_table(database: dict[str, str]) -> None:
    with psycopg.connect(database["DATABASE_OWNER_URL"], autocommit=True) as owner:
        owner.execute("CREATE TABLE t (id uuid DEFAULT uuidv7(), v vector(3))")
        owner.execute("GRANT SELECT, INSERT ON t TO kolm_app")
        with psycopg.connect(database["DATABASE_URL"], autocommit=True) as app:
            app.execute("INSERT INTO t (v) VALUES ('[1,2,3]')")
            for forbidden in ("DROP TABLE t", "ALTER TABLE t ADD x int", "TRUNCATE t", "CREATE TABLE u (x int)"):
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    app.execute(forbidden)
        owner.execute("DROP TABLE t")


def test_a_new_test_database_has_vectors_and_grants_the_app_nothing_by_default(database: dict[str, str]) -> None:
    owners, apps = (
        database[name].removesuffix("/kolm") + "/test_other" for name in ("DATABASE_OWNER_URL", "DATABASE_URL")
    )
    with psycopg.connect(database["DATABASE_OWNER_URL"], autocommit=True) as owner:
        owner.execute("CREATE DATABASE test_other")
    with psycopg.connect(owners) as owner:
        owner.execute("CREATE TABLE t (v halfvec(3))")
    with psycopg.connect(apps) as app, pytest.raises(psycopg.errors.InsufficientPrivilege):
        app.execute("SELECT * FROM t")


def test_a_filtered_vector_search_goes_on_until_it_has_enough_rows(database: dict[str, str]) -> None:
    with psycopg.connect(database["DATABASE_URL"]) as connection:
        assert connection.execute("SHOW hnsw.iterative_scan").fetchone() == ("strict_order",)


def test_a_wrong_password_is_refused(database: dict[str, str]) -> None:
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(database["DATABASE_URL"].replace("kolm_app:", "kolm_app:x"))


@pytest.mark.skipif(os.getuid() != 0, reason="only root needs a way around Postgres' refusal of root")
@pytest.mark.parametrize("route", one_in(3, ["namespace", "nobody", "copy"]))
def test_each_way_around_the_refusal_of_root_starts_a_server(route: str, monkeypatch: pytest.MonkeyPatch) -> None:
    home = Home(path=Path(tempfile.mkdtemp(prefix="kolm-root-")))
    copy = Path(tempfile.mkdtemp(prefix="kolm-copy-"))
    monkeypatch.setattr(postgres, "COPY", copy)
    try:
        home.create()
        launchable = postgres.find_launcher(route)
    except CannotStart:
        pytest.skip(f"this machine does not allow the way {route!r}")
    assert launchable is not None
    keys = load_or_create(home)
    spec = postgres.child_spec(home, keys, free_ports(1)[0], dict(os.environ), forgetful=True, route=route)
    try:
        assert spec.prepare is not None
        spec.prepare()
        server = spawn(spec)
        wait_until_ready(server)
        stop([server])
    finally:
        shutil.rmtree(home.path)
        shutil.rmtree(copy, ignore_errors=True)


def test_an_initialisation_cut_short_is_begun_again(home: Home) -> None:
    home.create()
    (home.path / "pg.new").mkdir()
    (home.path / "pg.new" / "PG_VERSION").write_text("18")
    with EmbeddedServices(home.path, ("postgres",), variables=bare_environ()) as services:
        psycopg.connect(services.env["DATABASE_URL"]).close()
    assert not (home.path / "pg.new").exists()


def test_a_pid_file_whose_pid_belongs_to_somebody_else_does_not_stop_the_server(home: Home) -> None:
    variables = bare_environ()
    with EmbeddedServices(home.path, ("postgres",), variables=variables):
        left_over = (home.pgdata / "postmaster.pid").read_text().splitlines()
    left_over[0] = str(os.getpid())
    left_over[2] = "1000000000"
    (home.pgdata / "postmaster.pid").write_text("\n".join(left_over))
    with EmbeddedServices(home.path, ("postgres",), variables=variables) as services:
        psycopg.connect(services.env["DATABASE_URL"]).close()


def test_data_of_another_major_version_is_left_alone_and_named(home: Home) -> None:
    home.create()
    home.pgdata.mkdir()
    (home.pgdata / "PG_VERSION").write_text("15\n")
    services = EmbeddedServices(home.path, ("postgres",), variables=bare_environ())
    with pytest.raises(CannotStart, match="written by Postgres 15"):
        services.stack.start()
    services.close()
    assert (home.pgdata / "PG_VERSION").read_text() == "15\n"


def test_lost_secrets_are_named_rather_than_replaced(home: Home) -> None:
    variables = bare_environ()
    EmbeddedServices(home.path, ("postgres",), variables=variables).__enter__().close()
    home.secrets.unlink()
    services = EmbeddedServices(home.path, ("postgres",), variables=variables)
    with pytest.raises(CannotStart, match=r"secrets\.json does not fit"):
        services.stack.start()
    services.close()
