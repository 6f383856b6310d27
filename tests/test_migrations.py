"""Migrations: every app has them at the top level, they say what the models say, and they can be taken back."""

import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import psycopg
import pytest
from django.apps import apps
from django.conf import settings
from django.db import connection
from django.db.migrations.autodetector import MigrationAutodetector
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.operations import RunPython, RunSQL
from django.db.migrations.state import ProjectState
from psycopg.conninfo import make_conninfo

ROOT = Path(__file__).parent.parent
LABELS = sorted({m._meta.app_label for m in apps.get_models() if m.__module__.startswith("backend.")})
MIGRATIONS = [key for key in MigrationLoader(None).disk_migrations if key[0] in LABELS]


@pytest.mark.parametrize("app", LABELS)
def test_every_app_has_its_migrations_at_the_top_level(app):
    """Django's own checks say nothing when the package is missing."""
    assert settings.MIGRATION_MODULES[app] == f"migrations.{app}"
    assert (ROOT / "migrations" / app / "__init__.py").exists()
    assert (ROOT / "migrations" / app / "0001_initial.py").exists()


def test_models_and_migrations_agree():
    """As `makemigrations --check`, which would ask the database for more than kolm_app may see."""
    detector = MigrationAutodetector(MigrationLoader(None).project_state(), ProjectState.from_apps(apps))
    changes = detector.changes(graph=MigrationLoader(None).graph)
    missing = {app: [str(op) for m in found for op in m.operations] for app, found in changes.items() if app in LABELS}
    assert missing == {}


@pytest.mark.parametrize("key", MIGRATIONS, ids=".".join)
def test_a_migration_can_be_taken_back(key):
    migration = MigrationLoader(None).disk_migrations[key]
    for operation in migration.operations:
        if isinstance(operation, (RunSQL, RunPython)):
            assert operation.reversible, operation


def test_no_app_has_two_ends():
    assert MigrationLoader(None).detect_conflicts() == {}


@pytest.mark.django_db
def test_the_role_of_production_was_given_rows_and_nothing_else():
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT DISTINCT table_name, privilege_type FROM information_schema.role_table_grants"
            " WHERE grantee IN ('kolm_app', 'PUBLIC') AND table_schema = 'public'"
        )
        granted = set(cursor.fetchall())
    tables = {model._meta.db_table for model in apps.get_models() if model.__module__.startswith("backend.")}
    assert {privilege for _, privilege in granted} <= {"SELECT", "INSERT", "UPDATE", "DELETE"}
    log_in = import_module("migrations.tenants.0004_log_in").TABLES
    assert {table for table, _ in granted} - tables == {"auth_user", *log_in}
    assert ("auth_user", "DELETE") not in granted


@pytest.mark.nightly
@pytest.mark.timeout(400)
def test_back_to_nothing_and_forth_again(embedded_services):
    """In a database of its own, as the owner, in the way an operator would."""
    owner = embedded_services.env["DATABASE_OWNER_URL"]
    with psycopg.connect(owner, autocommit=True) as admin:
        admin.execute("DROP DATABASE IF EXISTS test_back_and_forth")
        admin.execute("CREATE DATABASE test_back_and_forth")
    environment = (
        os.environ
        | embedded_services.env
        | {
            "KOLM_DB_ROLE": "owner",
            "DATABASE_OWNER_URL": make_conninfo(owner, dbname="test_back_and_forth"),
        }
    )
    try:
        for arguments in (["migrate"], *(["migrate", app, "zero"] for app in reversed(settings.APPS)), ["migrate"]):
            done = subprocess.run(
                [sys.executable, "manage.py", *arguments, "-v0"],
                cwd=ROOT,
                env=environment,
                capture_output=True,
                text=True,
            )
            assert done.returncode == 0, f"{arguments}: {done.stderr[-2000:]}"
    finally:
        with psycopg.connect(owner, autocommit=True) as admin:
            admin.execute("DROP DATABASE test_back_and_forth WITH (FORCE)")
