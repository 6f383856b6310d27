"""Walking a list page by page meets every row once."""

import pytest
from django.test import Client

from backend.domain.ids import Prefix, encode_id
from backend.tenants.isolation import tenant_scope
from backend.tenants.models import ApiKey
from tests.factories import bearer, make_api_key, make_tenant

pytestmark = pytest.mark.django_db


@pytest.fixture
def listed() -> tuple[str, list[str]]:
    """A key to ask with, and the ids of all eleven keys, newest first; four of them were made at the same instant."""
    tenant = make_tenant()
    secrets = [make_api_key(tenant) for _ in range(11)]
    with tenant_scope(tenant.id):
        rows = list(ApiKey.objects.order_by("id"))
        ApiKey.objects.filter(id__in=[row.id for row in rows[3:7]]).update(created_at=rows[3].created_at)
        newest_first = ApiKey.objects.order_by("-created_at", "-id").values_list("id", flat=True)
        return secrets[0], [encode_id(Prefix.API_KEY, id) for id in newest_first]


def get(secret: str, query: str) -> dict:
    answer = Client().get(f"/v1/api_keys?{query}", headers=bearer(secret))
    assert answer.status_code == 200, answer.content
    return answer.json()


@pytest.mark.parametrize("limit", [1, 2, 3, 10, 11, 100])
def test_walking_towards_older_rows(listed, limit):
    secret, ids = listed
    seen, query = [], f"limit={limit}"
    while True:
        page = get(secret, query)
        seen += [row["id"] for row in page["data"]]
        if not page["has_more"]:
            break
        query = f"limit={limit}&after={page['next_cursor']}"
    assert seen == ids
    assert page["next_cursor"] is None


@pytest.mark.parametrize("limit", [1, 3, 100])
def test_walking_back_towards_newer_rows(listed, limit):
    secret, ids = listed
    seen, cursor = [], ids[-1]
    while True:
        page = get(secret, f"limit={limit}&before={cursor}")
        seen = [row["id"] for row in page["data"]] + seen
        if not page["has_more"]:
            break
        cursor = page["next_cursor"]
    assert seen == ids[:-1]


@pytest.mark.parametrize(
    ("query", "pointer"),
    [
        ("limit=0", "/limit"),
        ("limit=101", "/limit"),
        ("limit=ten", "/limit"),
        ("limit=²", "/limit"),
        ("after=key_nothing", "/after"),
        ("after=cmp_01m7ycv54jf0sa3fej7e6jfafp", "/after"),
        ("before=key_01m7ycv54jf0sa3fej7e6jfafp", "/before"),
        ("before=a&after=b", "/before"),
        ("limt=3", "/limt"),
    ],
)
def test_a_query_that_cannot_be_is_refused(listed, query, pointer):
    answer = Client().get(f"/v1/api_keys?{query}", headers=bearer(listed[0]))
    assert answer.status_code == 400
    assert answer.json()["errors"][0]["pointer"] == pointer


def test_another_tenants_row_is_no_cursor(listed):
    answer = Client().get(f"/v1/api_keys?after={listed[1][0]}", headers=bearer(make_api_key(make_tenant())))
    assert answer.status_code == 400
