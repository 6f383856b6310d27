"""The API keys page: made, shown once, revoked; nobody gives a key more than his role has."""

import re
from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from backend.console.keys.scopes import needed_for
from backend.domain.ids import Prefix, encode_id
from backend.domain.roles import Role, allows
from backend.tenants.api_keys.permission_presets import COMMAND_LINE, PRESETS
from backend.tenants.isolation import tenant_scope
from backend.tenants.models import ApiKey
from tests.backend.console.pages import get, logged_in, plain, post
from tests.factories import bearer, make_api_key, make_tenant

pytestmark = pytest.mark.django_db

SECRET = re.compile(r"sk_(?:live|test)_[0-9A-Za-z]{36}")


@pytest.fixture
def tenant():
    return make_tenant()


def keys_of(tenant):
    with tenant_scope(tenant.id):
        return list(ApiKey.objects.of_tenant(tenant.id).order_by("created_at"))


def test_a_new_key_is_shown_once_with_the_line_that_tries_it_and_opens_the_api(tenant):
    client = logged_in(tenant)
    form = {"name": "ci", "scopes": ["compiles:read"], "expires": "90", "kind": "live"}
    answer = post(client, "/app/api_keys/create", form, status=200)
    (secret,) = set(SECRET.findall(answer.content.decode()))
    assert answer["Cache-Control"] == "no-store"
    assert f"Authorization: Bearer {secret}" in answer.content.decode()
    assert Client().get("/v1/compiles", headers=bearer(secret)).status_code == 200
    assert not SECRET.search(get(client, "/app/api_keys"))
    (row,) = keys_of(tenant)
    assert row.scopes == ["compiles:read"]
    assert timedelta(days=89) < row.expires_at - timezone.now() < timedelta(days=91)


def test_the_form_offers_ninety_days_and_every_scope_of_the_api(tenant):
    text = get(logged_in(tenant), "/app/api_keys")
    assert '<option value="90" selected>' in text
    for scope in ("compiles:write", "artifacts:run", "drafts:write", "webhooks:read"):
        assert f'value="{scope}"' in text
    assert "No API keys yet" in text


def test_a_revoked_key_opens_nothing_and_stays_in_the_list(tenant):
    secret = make_api_key(tenant, name="old <b>key</b>")
    client = logged_in(tenant)
    (row,) = keys_of(tenant)
    post(client, f"/app/api_keys/{encode_id(Prefix.API_KEY, row.id)}/revoke")
    assert Client().get("/v1/compiles", headers=bearer(secret)).status_code == 401
    text = get(client, "/app/api_keys")
    assert "revoked" in text
    assert "old &lt;b&gt;key" in text


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"name": ""}, "Give the key a name"),
        ({"name": "x" * 101}, "Give the key a name"),
        ({"scopes": []}, "at least one scope"),
        ({"scopes": ["everything"]}, "There is no scope"),
        ({"expires": "4000"}, "lifetimes"),
    ],
)
def test_a_bad_form_comes_back_with_what_was_typed_and_makes_nothing(tenant, change, said):
    form = {"name": "nightly", "scopes": ["compiles:read"], "expires": "90"} | change
    answer = post(logged_in(tenant), "/app/api_keys/create", form, status=422)
    assert said in answer.content.decode()
    assert keys_of(tenant) == []


def test_a_developer_gives_no_scope_that_his_role_lacks(tenant):
    developer = logged_in(tenant, Role.DEVELOPER)
    post(developer, "/app/api_keys/create", {"name": "mine", "scopes": ["compiles:write"], "expires": "30"}, status=200)
    refused = {"name": "more", "scopes": ["compiles:write", "team:write"], "expires": "30"}
    answer = post(developer, "/app/api_keys/create", refused, status=403)
    assert "cannot give a key the scope" in answer.content.decode()
    assert [row.name for row in keys_of(tenant)] == ["mine"]


@pytest.mark.parametrize("role", [Role.BILLING, Role.VIEWER])
def test_who_may_not_have_keys_sees_none(tenant, role):
    make_api_key(tenant)
    client = logged_in(tenant, role)
    get(client, "/app/api_keys", status=403)
    post(client, "/app/api_keys/create", {"name": "x", "scopes": ["compiles:read"]}, status=403)


def test_another_tenants_key_is_not_there(tenant):
    other = make_tenant("Other")
    make_api_key(other)
    (theirs,) = keys_of(other)
    client = logged_in(tenant)
    post(client, f"/app/api_keys/{encode_id(Prefix.API_KEY, theirs.id)}/revoke", status=404)
    post(client, "/app/api_keys/key_nonsense/revoke", status=404)
    assert keys_of(other)[0].revoked_at is None


def test_sixty_keys_stay_within_the_limits(tenant):
    for i in range(60):
        make_api_key(tenant, name=f"key {i}")
    text = get(logged_in(tenant), "/app/api_keys")
    assert text.count("data-row") == 25
    assert "1–25 of 60" in text


def test_a_key_shows_its_budget_or_the_way_to_one(tenant):
    make_api_key(tenant, name="ci")
    (row,) = keys_of(tenant)
    client, public_id = logged_in(tenant), encode_id(Prefix.API_KEY, row.id)
    assert f"/app/budgets?api_key={public_id}" in get(client, "/app/api_keys")
    post(client, "/app/budgets/create", {"whose": public_id, "usd": "12.50"})
    assert "$12.50 a month" in plain(get(client, "/app/api_keys"))


def test_the_usual_key_is_one_for_the_command_line(tenant):
    text = get(logged_in(tenant), "/app/api_keys")
    assert 'name="preset" value="command_line" checked' in text
    assert not re.search(r'name="scopes" value="[\w:]+" checked', text)
    form = {"name": "laptop", "preset": "command_line", "expires": "90"}
    post(logged_in(tenant), "/app/api_keys/create", form, status=200)
    (row,) = keys_of(tenant)
    assert set(row.scopes) == set(COMMAND_LINE.scopes)


@pytest.mark.parametrize("preset", PRESETS.values(), ids=lambda preset: preset.name)
def test_every_preset_is_offered_with_what_it_allows(tenant, preset):
    client = logged_in(tenant)
    text = get(client, "/app/api_keys")
    assert f'value="{preset.name}"' in text
    assert preset.allows in text
    post(client, "/app/api_keys/create", {"name": "x", "preset": preset.name, "expires": "90"}, status=200)
    (row,) = keys_of(tenant)
    assert set(row.scopes) == set(preset.scopes)


@pytest.mark.parametrize("preset", PRESETS.values(), ids=lambda preset: preset.name)
def test_a_preset_reaches_as_far_as_the_role_and_says_what_is_left_out(tenant, preset):
    developer = logged_in(tenant, Role.DEVELOPER)
    text = get(developer, "/app/api_keys")
    post(developer, "/app/api_keys/create", {"name": "x", "preset": preset.name, "expires": "90"}, status=200)
    (row,) = keys_of(tenant)
    beyond = {scope for scope in preset.scopes if not allows(Role.DEVELOPER, needed_for(scope))}
    assert set(row.scopes) == set(preset.scopes) - beyond
    assert bool(beyond) == (preset.name in ("command_line", "read_only", "everything"))
    said = re.search(rf'value="{preset.name}".*?</label>', text, re.DOTALL)[0]
    assert ("cannot grant it" in said) == bool(beyond)
    assert all(scope in said for scope in beyond)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"preset": "root"}, "Choose one of the offered purposes"),
        ({"preset": "ci", "scopes": ["compiles:read"]}, "Scopes are ticked"),
        ({"preset": "chosen"}, "at least one scope"),
    ],
)
def test_a_form_that_says_two_things_or_none_makes_no_key(tenant, change, said):
    form = {"name": "nightly", "expires": "90"} | change
    answer = post(logged_in(tenant), "/app/api_keys/create", form, status=422)
    assert said in answer.content.decode()
    assert keys_of(tenant) == []
