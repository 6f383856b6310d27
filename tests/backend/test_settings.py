"""A bad environment ends in one message that names all of its faults."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from deploy.embedded.stack import EmbeddedServices

ROOT = Path(__file__).parents[2]


def start(environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    code = "from backend.settings import DATABASES as d; print(sorted(d['default']['OPTIONS']), d['default']['USER'])"
    path = {"PATH": os.environ["PATH"]}
    environment = path | environment
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True)


@pytest.fixture
def good(embedded_services: EmbeddedServices) -> dict[str, str]:
    return dict(embedded_services.env)


def test_an_empty_environment_names_every_variable_at_once():
    done = start({})
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    for name in (
        "DATABASE_URL",
        "REDIS_URL",
        "KOLM_SECRET_KEY",
        "KOLM_TENANT_TOKEN_KEY",
        "KOLM_SEALING_KEY",
        "KOLM_SIGNING_KEY_FILE",
        "KOLM_RUNNER_TOKEN",
        "KOLM_BLOB_DIR",
        "KOLM_PUBLIC_URL",
    ):
        assert f"{name} is not set" in last


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("DATABASE_URL", "mysql://x/y", "DATABASE_URL must be a postgresql:// address"),
        ("DATABASE_URL", "postgresql://localhost", "DATABASE_URL must name a database"),
        ("REDIS_URL", "http://x", "REDIS_URL must be a redis://"),
        ("KOLM_SECRET_KEY", "short", "KOLM_SECRET_KEY must have at least 32 characters"),
        ("KOLM_TENANT_TOKEN_KEY", "zz", "KOLM_TENANT_TOKEN_KEY must be hexadecimal"),
        ("KOLM_TENANT_TOKEN_KEY", "00", "KOLM_TENANT_TOKEN_KEY must be 32 bytes"),
        ("KOLM_SEALING_KEY", "%%", "KOLM_SEALING_KEY must be base64"),
        ("KOLM_SEALING_KEY", "AAAA", "KOLM_SEALING_KEY must be 32 bytes"),
        ("KOLM_EMBEDDERS", "../secrets", "KOLM_EMBEDDERS names no embedder: '../secrets'"),
        ("KOLM_EMBEDDERS", ",", "KOLM_EMBEDDERS names no embedder"),
        ("KOLM_EMBEDDERS", "a=models/a", "KOLM_EMBEDDERS gives the embedder a a folder that does not begin with /"),
        ("KOLM_EMBEDDERS", "a/b,a/b=/c", "KOLM_EMBEDDERS names the embedder a/b twice"),
        ("KOLM_SEALING_KEYS_OTHER", "AAAA", "KOLM_SEALING_KEYS_OTHER must be 32 bytes"),
        ("KOLM_SIGNING_KEY_FILE", "/nowhere", "KOLM_SIGNING_KEY_FILE names no file"),
        ("KOLM_PUBLIC_URL", "kolm.example", "KOLM_PUBLIC_URL must be an http:// or https:// address"),
        ("KOLM_GRAMMAR_URL", "kolm.example", "KOLM_GRAMMAR_URL must be"),
        ("KOLM_ALLOW_PRIVATE_TEACHERS", "yes", "KOLM_ALLOW_PRIVATE_TEACHERS must be"),
        ("KOLM_ALLOW_PRIVATE_TEACHERS", "http://10.0.0.1/v1", "KOLM_ALLOW_PRIVATE_TEACHERS lists origins"),
        ("KOLM_RUNNER_LEASE_S", "0", "KOLM_RUNNER_LEASE_S must be at least 1"),
        ("KOLM_COMPILE_LEASE_S", "1.5", "KOLM_COMPILE_LEASE_S must be a whole number"),
        ("KOLM_DB_ROLE", "root", "KOLM_DB_ROLE must be app or owner"),
    ],
)
def test_a_bad_variable_says_what_it_must_be(good, name, value, said):
    done = start(good | {name: value})
    assert done.returncode == 1
    assert said in done.stderr.strip().splitlines()[-1]


def test_an_operators_prices_are_read_at_the_start_and_a_bad_row_stops_it(good, tmp_path):
    row = {"host": "llm.example.com", "model": "m", "input_usd_per_mtok": "1", "output_usd_per_mtok": "2"}
    row |= {"as_of": "2026-11-01", "source": "contract"}
    file = tmp_path / "prices.json"
    for changes, message in (
        ({}, ""),
        ({"as_of": "01.11.2026"}, "row 2 (m-2): as_of: a day is needed"),
        ({"as_of": "2226-11-01"}, "row 2 (m-2): as_of: is to come"),
        ({"output_usd_per_mtok": "0"}, "row 2 (m-2): output_usd_per_mtok: 0; a model that costs nothing"),
    ):
        file.write_text(json.dumps({"prices": [row, row | {"model": "m-2"} | changes]}))
        done = start(good | {"KOLM_TEACHER_PRICES": str(file)})
        assert done.returncode == bool(message), done.stderr
        assert message in done.stderr
        assert not message or f"KOLM_TEACHER_PRICES names a table that cannot be used, {file}: {message}" in done.stderr
    missing = start(good | {"KOLM_TEACHER_PRICES": str(tmp_path / "none.json")})
    assert "KOLM_TEACHER_PRICES names" in missing.stderr
    assert "none.json" in missing.stderr


def test_a_secret_is_never_repeated_in_the_message(good):
    done = start(good | {"KOLM_RUNNER_TOKEN": "tooshortsecret", "KOLM_SECRET_KEY": "alsoshort"})
    assert "tooshortsecret" not in done.stderr
    assert "alsoshort" not in done.stderr


def test_the_role_chooses_the_address(good):
    assert "kolm_app" in start(good).stdout
    owner = start(good | {"KOLM_DB_ROLE": "owner"}).stdout
    assert "kolm_owner" in owner
    assert "pool" not in owner


def test_the_pool_can_be_turned_off(good):
    assert "'pool'" in start(good).stdout
    assert "'pool'" not in start(good | {"KOLM_DB_POOL": "0"}).stdout
