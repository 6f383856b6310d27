"""Usage is booked under the tags of that moment, and every grouping by them sums to the same."""

import csv
import io

import pytest

from backend.domain.ids import Prefix, encode_id
from backend.domain.lifecycle import StepName
from backend.tenants.isolation import tenant_scope
from backend.tenants.models import ApiKey
from backend.usage.ledger import Fact, record
from backend.usage.models import UsageFact
from backend.usage.reports import TagFilter, tag_names, usage_by
from backend.usage.subjects import Subject
from tests.compile_factories import hold, public_id, small_spec
from tests.factories import bearer, make_api_key, make_tenant
from workers.step import spending

pytestmark = pytest.mark.usefixtures("committed_db")


def fact(key: str, amount: int) -> Fact:
    return Fact(
        sku="runner.second",
        quantity=1,
        unit="second",
        price_version="test",
        amount_microusd=amount,
        source_key=key,
    )


def submitted(tenant, key_id, **spec):
    from backend.compiles.lifecycle import submission

    with tenant_scope(tenant.id):
        row = submission.submit(tenant.id, small_spec(**spec), api_key_id=key_id)
        row.refresh_from_db()
        return row


def key_with(client, tenant, **tags):
    admin = make_api_key(tenant, name="admin")
    body = {"name": "ci", "preset": "everything", "tags": tags}
    made = client.post("/v1/api_keys", body, content_type="application/json", headers=bearer(admin)).json()
    with tenant_scope(tenant.id):
        return made, ApiKey.objects.get(name="ci").id


def test_a_compile_is_booked_under_the_tags_of_its_key_and_of_its_spec_which_wins(client):
    tenant = make_tenant()
    made, key_id = key_with(client, tenant, team="ops", env="ci")
    assert made["tags"] == {"team": "ops", "env": "ci"}
    row = submitted(tenant, key_id, tags={"team": "search"})
    answer = client.patch(
        f"/v1/api_keys/{made['id']}", {"tags": {"env": "prod"}}, "application/json", headers=bearer(made["secret"])
    )
    assert answer.json()["tags"] == {"env": "prod"}
    with hold(row).transaction() as fenced:
        spending.capture(fenced, StepName.LABELING, [fact("a", 700)])
    with tenant_scope(tenant.id):
        booked = UsageFact.objects.get()
    assert booked.tags == {"team": "search", "env": "ci"}, "as they were when it was submitted"
    assert booked.subject == "router"


def test_usage_by_a_tag_sums_to_the_whole_and_can_be_filtered(client):
    tenant = make_tenant()
    secret = make_api_key(tenant)
    with tenant_scope(tenant.id):
        for key, amount, tags in (("a", 5, {"team": "x"}), ("b", 7, {"team": "y", "env": "ci"}), ("c", 11, {})):
            record(tenant.id, [fact(key, amount)], compile_id=None, step="run", subject=Subject(tags=tags))
    body = client.get("/v1/usage?group_by=tag:team", headers=bearer(secret)).json()
    assert [(row["key"], row["charged_microusd"]) for row in body["data"]] == [("", 11), ("y", 7), ("x", 5)]
    assert body["charged_microusd"] == 23
    for tag, charged in (("team:x", 5), ("env:ci", 7), ("team:", 11), ("team:z", 0)):
        body = client.get(f"/v1/usage?group_by=step&tag={tag}", headers=bearer(secret)).json()
        assert body["charged_microusd"] == charged, tag
    for query in ("group_by=tag:", "group_by=tag:Team", "tag=team", "tag=team:=1+1", "group_by=tag:a'b"):
        assert client.get(f"/v1/usage?{query}", headers=bearer(secret)).status_code in (400, 422), query
    rows = client.get("/v1/usage.csv?tag=team:y", headers=bearer(secret))
    (line,) = csv.DictReader(io.StringIO(b"".join(rows.streaming_content).decode()))
    assert (line["amount_microusd"], line["tags"]) == ("7", "env=ci, team=y")


def test_a_subject_that_begins_like_a_formula_is_inert_in_the_csv(client):
    tenant = make_tenant()
    secret = make_api_key(tenant)
    with tenant_scope(tenant.id):
        for i, sign in enumerate("=+-@\t\r"):
            subject = Subject(name=f"{sign}1+1")
            record(tenant.id, [fact(f"f{i}", 1)], compile_id=None, step="run", subject=subject)
    answer = client.get("/v1/usage.csv", headers=bearer(secret))
    rows = csv.DictReader(io.StringIO(b"".join(answer.streaming_content).decode(), newline=""))
    assert {row["subject"][0] for row in rows} == {"'"}


def test_another_tenants_tags_are_never_seen():
    one, other = make_tenant(), make_tenant()
    with tenant_scope(one.id):
        record(one.id, [fact("a", 5)], compile_id=None, step="run", subject=Subject(tags={"team": "secret"}))
        start = UsageFact.objects.get().occurred_at.replace(day=1, hour=0, minute=0)
        assert tag_names(one.id, start, start.replace(year=start.year + 1)) == ["team"]
    with tenant_scope(other.id):
        span = (start, start.replace(year=start.year + 1))
        assert tag_names(other.id, *span) == []
        assert usage_by(other.id, "tag:team", *span, tag=TagFilter(name="team", value="secret")) == []


def test_the_compile_group_still_names_compiles(client):
    tenant = make_tenant()
    secret = make_api_key(tenant)
    row = submitted(tenant, None)
    with hold(row).transaction() as fenced:
        spending.capture(fenced, StepName.LABELING, [fact("a", 700)])
    body = client.get("/v1/usage?group_by=compile", headers=bearer(secret)).json()
    assert [line["key"] for line in body["data"]] == [public_id(row)] == [encode_id(Prefix.COMPILE, row.id)]
