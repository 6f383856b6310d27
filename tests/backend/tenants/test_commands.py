"""The commands an operator starts with, as the role of production."""

import json
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import ProgrammingError, transaction
from django.test import Client

from tests.factories import bearer, make_tenant

pytestmark = pytest.mark.django_db


def run(*arguments: str) -> dict[str, Any]:
    out = StringIO()
    call_command(*arguments, "--json", stdout=out)
    return json.loads(out.getvalue())


def test_from_nothing_to_a_working_key():
    tenant = run("create_tenant", "Acme")
    member = run("create_user", "Ada@Example.com", "--tenant", tenant["id"])
    key = run("create_api_key", "--tenant", tenant["id"], "--name", "laptop", "--scopes", "all", "--expires-days", "90")
    assert member["email"] == "ada@example.com"
    assert Client().get("/v1/tenant", headers=bearer(key["secret"])).json() == tenant
    assert key["expires_at"] is not None


def test_a_person_may_be_in_two_tenants_and_is_added_once():
    first, second = run("create_tenant", "A"), run("create_tenant", "B")
    ids = [run("create_user", "ada@example.com", "--tenant", t["id"])["id"] for t in (first, first, second)]
    assert ids[0] == ids[1] != ids[2]


def test_a_key_with_named_scopes():
    tenant = run("create_tenant", "Acme")
    key = run(
        "create_api_key", "--tenant", tenant["id"], "--name", "ci", "--scopes", "compiles:read,artifacts:run", "--test"
    )
    assert key["scopes"] == ["artifacts:run", "compiles:read"]
    assert key["secret"].startswith("sk_test_")


def test_for_people_the_answer_is_lines():
    out = StringIO()
    call_command("create_tenant", "Acme", stdout=out)
    assert "name: Acme" in out.getvalue()


@pytest.mark.parametrize(
    "arguments",
    [
        ["create_tenant", " "],
        ["create_tenant", "x" * 101],
        ["create_user", "ada@example.com", "--tenant", "nonsense"],
        ["create_user", "ada@example.com", "--tenant", "ten_01m7ycv54jf0sa3fej7e6jfafp"],
        ["create_user", "not an address", "--tenant", "ten_01m7ycv54jf0sa3fej7e6jfafp"],
        ["create_api_key", "--tenant", "ten_01m7ycv54jf0sa3fej7e6jfafp", "--name", "x", "--scopes", "all"],
    ],
)
def test_what_cannot_be_done_is_one_sentence(arguments):
    with pytest.raises(CommandError):
        run(*arguments)


@pytest.mark.parametrize(
    ("option", "value"), [("--scopes", "compiles:raed"), ("--expires-days", "0"), ("--expires-days", "99999")]
)
def test_a_key_that_cannot_be_is_one_sentence(option, value):
    tenant = run("create_tenant", "Acme")
    options = {"--scopes": "all"} | {option: value}
    with pytest.raises(CommandError):
        run(
            "create_api_key",
            "--tenant",
            tenant["id"],
            "--name",
            "x",
            *[part for pair in options.items() for part in pair],
        )


def test_the_key_of_the_wall_is_installed_by_the_owner_alone():
    make_tenant()
    with pytest.raises(ProgrammingError), transaction.atomic():
        call_command("install_tenant_key")
