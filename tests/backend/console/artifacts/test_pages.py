"""The artifact pages: what was published, its lineage, verification, download and revocation."""

import re

import pytest

from backend.artifacts.models import Artifact
from backend.domain.roles import Role
from backend.tenants.isolation import tenant_scope
from tests.backend.console.pages import get, logged_in, post
from tests.compile_factories import change, fresh, make_artifact, make_compile, make_receipts, public_id
from tests.factories import make_tenant

pytestmark = pytest.mark.django_db

HOSTILE = '<script>alert("x")</script>'
EVALUATION = {
    "n": 40,
    "correct": 37,
    "answered": 40,
    "accuracy_ppm": 925_000,
    "accuracy_low_ppm": 801_000,
    "accuracy_high_ppm": 974_000,
    "confidence_ppm": 950_000,
    "per_class": [
        {
            "label": HOSTILE,
            "n": 20,
            "predicted": 19,
            "correct": 18,
            "recall_low_ppm": 700_000,
            "recall_high_ppm": 970_000,
            "recall_ppm": 900_000,
            "precision_ppm": 947_368,
        }
    ],
    "confusions": [],
    "baselines": [{"name": "majority", "correct": 20, "n": 40, "accuracy_ppm": 500_000}],
    "latency_us_p50": 812,
    "latency_us_p95": 1_400,
    "device": "cpu",
}


@pytest.fixture
def tenant():
    return make_tenant()


def publish(tenant, *, version=1, k_score_ppm=912_345, **changes):
    row = make_compile(tenant)
    make_receipts(row)
    artifact = make_artifact(row, version=version)
    with tenant_scope(tenant.id):
        Artifact.objects.filter(id=artifact.id).update(k_score_ppm=k_score_ppm, **changes)
    return fresh(artifact)


def test_without_artifacts_the_page_says_how_one_comes_to_be(tenant):
    text = get(logged_in(tenant), "/app/artifacts")
    assert "No artifacts yet" in text
    assert re.search(r"/v1/compiles .*-d ", text)


def test_a_name_is_one_row_with_its_newest_version_and_its_trend(tenant):
    publish(tenant, k_score_ppm=800_000)
    newest = publish(tenant, version=2)
    text = get(logged_in(tenant), "/app/artifacts")
    assert text.count("data-row") == 1
    assert public_id(newest) in text
    assert "0.912" in text
    assert "<svg" in text


def test_the_list_is_searched_by_name_and_the_search_is_escaped(tenant):
    publish(tenant)
    assert "data-row" in get(logged_in(tenant), "/app/artifacts?q=rout")
    text = get(logged_in(tenant), "/app/artifacts?q=%3Cb%3Enothing")
    assert "&lt;b&gt;nothing" in text
    assert "<b>nothing" not in text


def test_the_page_shows_lineage_with_differences_evaluation_receipts_and_lines(tenant):
    before = publish(tenant, k_score_ppm=900_000, size_bytes=1_000)
    after = publish(tenant, version=2, k_score_ppm=912_345, size_bytes=1_500, evaluation=EVALUATION)
    change_costs(after, 2_500_000)
    text = get(logged_in(tenant), f"/app/artifacts/{public_id(after)}")
    assert "+0.012" in text
    assert "+500" in text
    assert "+$2.50" in text
    assert public_id(before) in text
    assert "[80.1, 97.4]" in text
    assert HOSTILE not in text
    assert "&lt;script&gt;" in text
    assert f"kolm pull {public_id(after)} --out router-2.kolm" in text
    assert "kolm verify router-2.kolm" in text
    assert text.count("rcpt_") >= 3


def change_costs(artifact, microusd):
    from backend.compiles.models import Compile

    with tenant_scope(artifact.tenant_id):
        Compile.objects.filter(id=artifact.compile_id).update(budget_microusd=9_000_000, spent_microusd=microusd)


def test_an_ablation_names_what_it_was_taken_from(tenant):
    base = make_compile(tenant)
    artifact = publish(tenant)
    with tenant_scope(tenant.id):
        from backend.compiles.models import Compile

        change(Compile.objects.get(id=artifact.compile_id), ablation_of=base.id, arm="random")
    text = get(logged_in(tenant), f"/app/artifacts/{public_id(artifact)}")
    assert "Ablation of" in text
    assert public_id(base) in text


def test_verifying_says_trusted_with_and_without_scripts(tenant):
    artifact = publish(tenant)
    client, path = logged_in(tenant), f"/app/artifacts/{public_id(artifact)}/verify"
    whole = client.post(path).content.decode()
    assert "Trusted." in whole
    assert "<h1>" in whole
    fragment = client.post(path, headers={"HX-Request": "true"}).content.decode()
    assert "Trusted." in fragment
    assert "<h1>" not in fragment


def test_the_download_is_the_bytes_that_were_signed(tenant):
    artifact = publish(tenant)
    answer = logged_in(tenant).get(f"/app/artifacts/{public_id(artifact)}/download")
    assert answer.status_code == 200
    assert len(answer.content) == artifact.size_bytes
    assert answer["Content-Disposition"] == 'attachment; filename="router-1.kolm"'


def test_a_revoked_artifact_says_why_and_its_bytes_want_a_second_thought(tenant):
    artifact = publish(tenant)
    client, path = logged_in(tenant), f"/app/artifacts/{public_id(artifact)}"
    post(client, f"{path}/revoke", {"reason": ""}, status=400)
    post(client, f"{path}/revoke", {"reason": f"leaks {HOSTILE}"})
    text = get(client, path)
    assert "Revoked" in text
    assert "&lt;script&gt;" in text
    assert HOSTILE not in text
    assert client.get(f"{path}/download").status_code == 409
    assert client.get(f"{path}/download?revoked=true").status_code == 200
    assert "revoked" in get(client, "/app/artifacts")


def test_viewers_may_look_and_not_revoke(tenant):
    artifact = publish(tenant)
    viewer, path = logged_in(tenant, Role.VIEWER), f"/app/artifacts/{public_id(artifact)}"
    assert "Revoke" not in get(viewer, path)
    post(viewer, f"{path}/revoke", {"reason": "no"}, status=403)
    assert fresh(artifact).revoked_at is None


def test_another_tenants_artifact_is_not_there(tenant):
    theirs = publish(make_tenant("Other"))
    client, path = logged_in(tenant), f"/app/artifacts/{public_id(theirs)}"
    get(client, path, status=404)
    for verb in ("verify", "revoke"):
        post(client, f"{path}/{verb}", {"reason": "mine"}, status=404)
    assert client.get(f"{path}/download").status_code == 404
    assert fresh(theirs).revoked_at is None


@pytest.mark.nightly
def test_many_versions_stay_within_the_limits(tenant):
    for version in range(1, 41):
        last = publish(tenant, version=version)
    get(logged_in(tenant), "/app/artifacts")
    get(logged_in(tenant), f"/app/artifacts/{public_id(last)}")
