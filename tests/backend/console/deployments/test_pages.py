"""The deployment pages: made, changed, promoted, rolled back, drained, deleted; what was answered is shown."""

from datetime import timedelta

import pytest
from django.utils import timezone

from backend.domain.ids import Prefix, encode_id
from backend.domain.roles import Role
from backend.serving.models import Deployment, DeploymentHour, DeploymentRevision
from backend.tenants.isolation import tenant_scope
from tests.backend.console.pages import get, logged_in, post
from tests.backend.serving.worlds import World, make_world
from tests.compile_factories import public_id

pytestmark = pytest.mark.usefixtures("committed_db")


@pytest.fixture
def world(committed_db: None) -> World:
    return make_world()


def path_of(row: Deployment) -> str:
    return f"/app/deployments/{encode_id(Prefix.DEPLOYMENT, row.id)}"


def row_of(world: World, name: str = "router") -> Deployment:
    with tenant_scope(world.tenant.id):
        return Deployment.objects.of_tenant(world.tenant.id).get(name=name)


def hour_of(world: World, row: Deployment, **fields) -> None:
    hour = timezone.now().replace(minute=0, second=0, microsecond=0)
    with tenant_scope(world.tenant.id):
        DeploymentHour.objects.create(
            tenant_id=world.tenant.id, deployment_id=row.id, artifact_id=row.artifact_id, hour=hour, **fields
        )


def actions(world: World) -> list[str]:
    with tenant_scope(world.tenant.id):
        rows = DeploymentRevision.objects.of_tenant(world.tenant.id).order_by("version")
        return [row.action for row in rows]


def test_without_deployments_the_page_has_the_request_that_makes_one(world):
    text = get(logged_in(world.tenant), "/app/deployments")
    assert "No deployments yet" in text
    assert "/v1/deployments" in text
    assert public_id(world.artifact) in text  # in the form


def test_a_deployment_is_made_and_shows_how_it_is_called(world):
    client = logged_in(world.tenant)
    form = {"name": "orders", "artifact": public_id(world.artifact)}
    answer = post(client, "/app/deployments/create", form)
    text = get(client, answer.url)
    assert "/v1/chat/completions" in text
    assert "&quot;model&quot;: &quot;orders&quot;" in text or '"model": "orders"' in text
    assert "orders" in get(client, "/app/deployments")


@pytest.mark.parametrize("name", ["", "Orders", "art_x", "a b", "<script>"])
def test_a_name_that_is_none_is_refused_with_the_form_as_it_was(world, name):
    client = logged_in(world.tenant)
    answer = post(client, "/app/deployments/create", {"name": name, "artifact": public_id(world.artifact)}, status=422)
    assert "<script>" not in answer.content.decode().split("</head>")[1].replace("<script src", "")
    assert actions(world) == []


@pytest.mark.parametrize(("task_type", "is_offered"), [("label", True), ("image", False)])
def test_a_label_student_is_offered_and_what_no_server_knows_is_not(world, task_type, is_offered):
    with tenant_scope(world.tenant.id):
        world.artifact.manifest = {"base": {"id": "minilm", "sha256": "c" * 64}, "task_type": task_type, "members": []}
        world.artifact.save(update_fields=["manifest"])
    client = logged_in(world.tenant)
    assert ("There is no artifact to deploy yet" in get(client, "/app/deployments")) is not is_offered
    form = {"name": "orders", "artifact": public_id(world.artifact)}
    answer = post(client, "/app/deployments/create", form, status=302 if is_offered else 422)
    assert is_offered or "No server loads" in answer.content.decode()


def test_a_canary_is_set_promoted_and_rolled_back(world):
    world.deploy()
    second = world.another()
    client, row = logged_in(world.tenant), row_of(world)
    path = path_of(row)
    post(client, f"{path}/change", {"part": "canary", "artifact": public_id(second), "share": "7.5"})
    assert row_of(world).canary_share_ppm == 75_000
    assert "7.5" in get(client, path)
    post(client, f"{path}/promote")
    assert row_of(world).artifact_id == second.id
    post(client, f"{path}/rollback")
    assert row_of(world).artifact_id == world.artifact.id
    post(client, f"{path}/drain")
    assert "draining" in get(client, path)
    post(client, f"{path}/start")
    assert actions(world) == ["created", "changed", "promoted", "rolled_back", "drained", "started"]
    post(client, f"{path}/delete")
    get(client, path, status=404)


def test_the_shadow_is_set_with_a_budget_and_refused_without(world):
    world.deploy()
    client, path = logged_in(world.tenant), path_of(row_of(world))
    post(client, f"{path}/change", {"part": "shadow", "share": "2", "usd": "1.50", "rollback": "1"})
    row = row_of(world)
    assert (row.shadow_share_ppm, row.shadow_microusd_per_day, row.drift_rollback) == (20_000, 1_500_000, True)
    post(client, f"{path}/change", {"part": "shadow", "share": "2", "usd": ""}, status=400)
    post(client, f"{path}/change", {"part": "shadow", "share": "101", "usd": "1"}, status=400)
    assert row_of(world).shadow_share_ppm == 20_000


def test_what_was_answered_is_shown_with_times_and_agreement(world):
    world.deploy()
    row = row_of(world)
    histogram = [0] * 96
    histogram[40] = 12
    hour_of(
        world,
        row,
        n_requests=12,
        prompt_tokens=1_200,
        completion_tokens=345,
        first_token=histogram,
        total=histogram,
        ran=[{"name": "torch", "device": "cpu"}],
        n_shadow=4,
        shadow_agreement_ppm=3_600_000,
    )
    text = get(logged_in(world.tenant), path_of(row))
    assert "345" in text
    assert "Tokens by hour" in text
    assert "Student against teacher" in text
    assert "90" in text  # 3.6 of 4 agreed
    assert "torch" in text
    assert "12" in get(logged_in(world.tenant), "/app/deployments")


def test_answers_by_rules_are_told_apart_from_the_models(world):
    world.deploy()
    row = row_of(world)
    hour_of(world, row, n_requests=1_240, n_failed=30, n_canceled=10, n_rule=450, completion_tokens=9_000)
    text = " ".join(get(logged_in(world.tenant), path_of(row)).split())
    assert '<td class="num">450 <span class="muted">37.5 %</span></td><td class="num">750</td>' in text


def test_a_deployment_without_rules_has_no_share_of_them(world):
    world.deploy()
    row = row_of(world)
    hour_of(world, row, n_requests=5)
    text = " ".join(get(logged_in(world.tenant), path_of(row)).split())
    assert '<td class="num">0</td><td class="num">5</td>' in text


def test_an_hour_before_the_span_is_not_counted(world):
    world.deploy()
    row = row_of(world)
    hour_of(world, row, n_requests=7_777)
    with tenant_scope(world.tenant.id):
        DeploymentHour.objects.of_tenant(world.tenant.id).update(hour=timezone.now() - timedelta(days=2))
    assert "7,777" not in get(logged_in(world.tenant), "/app/deployments")


def test_who_only_looks_changes_nothing(world):
    world.deploy()
    client, path = logged_in(world.tenant, Role.VIEWER), path_of(row_of(world))
    assert "Drain" not in get(client, path)
    post(client, f"{path}/drain", status=403)
    assert actions(world) == ["created"]


def test_another_tenants_deployment_is_not_there(world):
    world.deploy()
    other = make_world()
    get(logged_in(other.tenant), path_of(row_of(world)), status=404)
