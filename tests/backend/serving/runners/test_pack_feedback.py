"""What servers tell of recipe packs: whose it is, what is believed of it, and how long it stays."""

from typing import Any
from uuid import uuid4

import pytest
from django.conf import settings
from django.db import connection

from backend.artifacts.models import Artifact
from backend.blobs import get_json
from backend.domain.errors import Unavailable
from backend.domain.recipes.feedback import PackFeedback
from backend.domain.recipes.shapes import shape_of
from backend.domain.serving.wire import BadGrant, FeedbackRow, grant_key, read_grant
from backend.runner_jobs.models import RunnerJob
from backend.serving.models import PackReport
from backend.serving.runners.pack_feedback import KEPT, feedback_of, forget_pack_reports
from backend.serving.running import run_inputs
from backend.tenants.isolation import tenant_scope
from tests.backend.serving.runners.test_servers import grant_of
from tests.backend.serving.worlds import World, make_world, runner

PACK = "c" * 64
SHAPE = shape_of(b'{"city": ')
RUN = {"tokens": [5, 6, 7]}


def with_pack(world: World) -> World:
    members = [{"path": "recipes.json", "size": 30, "sha256": PACK}]
    with tenant_scope(world.tenant.id):
        world.artifact.manifest = world.artifact.manifest | {"members": members}
        Artifact.objects.of_tenant(world.tenant.id).filter(id=world.artifact.id).update(
            manifest=world.artifact.manifest
        )
    return world


@pytest.fixture
def world(committed_db: None) -> World:
    return with_pack(make_world())


def found(world: World, n: int = 10, **changed: Any) -> PackFeedback:
    given: dict[str, Any] = {
        "artifact_sha256": world.artifact.sha256,
        "pack_sha256": PACK,
        "n_answers": n,
        "n_tokens": 20 * n,
        "tried": [{"id": "0123456789abcdef", "tried": n, "accepted": n - 1}],
        "missed": [{"shape": SHAPE, "n": n}],
        "learned": [],
    }
    return PackFeedback(**(given | changed))


def row(world: World, feedback: PackFeedback | None = None, *, log: str = "a" * 32, **granted: Any) -> dict[str, Any]:
    told = (found(world) if feedback is None else feedback).to_json()
    return FeedbackRow(grant=grant_of(world, **granted), log=log, feedback=told).to_json()


def tell(*rows: Any) -> dict[str, Any]:
    answer = runner("pack-feedback", {"server": "srv_x", "rows": list(rows)})
    assert answer.status_code == 200, answer.content
    told: dict[str, Any] = answer.json()
    return told


def known(world: World) -> list[PackFeedback]:
    with tenant_scope(world.tenant.id):
        return feedback_of(world.tenant.id, [world.artifact.sha256])


def test_a_newer_telling_replaces_the_older_and_a_late_one_changes_nothing(world):
    assert tell(row(world)) == {"kept": 1, "refused": []}
    assert tell(row(world, found(world, 30)), row(world, found(world, 20)))["kept"] == 2
    assert known(world) == [found(world, 30)]
    assert tell(row(world, found(world, 4), log="b" * 32))["kept"] == 1
    assert sorted(one.n_answers for one in known(world)) == [4, 30], "two servers are two logs"


def test_a_report_lands_with_the_tenant_of_its_grant_and_nobody_else_reads_it(world):
    other = with_pack(make_world())
    tell(row(world))
    assert known(other) == []
    with tenant_scope(other.tenant.id):
        assert feedback_of(world.tenant.id, [world.artifact.sha256]) == []
    forged = row(world) | {"grant": grant_of(other)}
    assert "artifact is not the one" in tell(forged)["refused"][0]["detail"]


def test_text_is_kept_sealed_and_only_where_the_spec_allows_it(world):
    tell(row(world, found(world, learned=[RUN])))
    assert known(world)[0].learned == []
    open_one = with_pack(make_world(spec={"recipes": {"learn_text": True}}))
    tell(row(open_one, found(open_one, learned=[RUN])))
    assert known(open_one)[0].learned == [RUN]
    with tenant_scope(open_one.tenant.id):
        assert b"tokens" not in bytes(PackReport.objects.get().sealed)


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"pack_sha256": "d" * 64}, "pack is not"),
        ({"artifact_sha256": "d" * 64}, "artifact is not"),
        ({"tried": [{"id": "x", "tried": 1, "accepted": 1}]}, "not of its form"),
        ({"tried": [{"id": "0" * 16, "tried": 1, "accepted": 2}]}, "not of its form"),
        ({"missed": [{"shape": "the password is hunter2", "n": 1}]}, "not of its form"),
        ({"missed": [{"shape": f"{SHAPE} hunter2", "n": 1}]}, "not of its form"),
        ({"missed": [{"shape": f"{SHAPE}\n", "n": 1}]}, "not of its form"),
        ({"missed": [{"shape": SHAPE + " STR" * 100, "n": 1}]}, "not of its form"),
        ({"missed": [{"shape": SHAPE, "n": 1}] * 2_001}, "at most"),
        ({"learned": [{"tokens": ["secret"]}]}, "not of its form"),
        ({"learned": [{"tokens": [7] * 40_000}] * 2}, "at most"),
        ({"n_answers": -1}, "counts"),
        ({"n_tokens": True}, "counts"),
    ],
)
def test_a_hostile_report_is_refused_by_itself(world, changed, why):
    told = tell(row(world, found(world, **changed)), row(world, log="b" * 32))
    assert told["kept"] == 1
    assert [(one["row"], why in one["detail"]) for one in told["refused"]] == [(0, True)]


def test_what_is_no_report_is_refused(world):
    told = tell({}, "x", row(world) | {"log": "../../etc"}, row(world) | {"grant": "a.b"})
    assert (told["kept"], len(told["refused"])) == (0, 4)
    assert tell(row(world, sha256="e" * 64))["kept"] == 0
    many = {"server": "srv_x", "rows": [{}] * 101}
    assert runner("pack-feedback", many).status_code == 400


def test_a_log_stays_with_its_pack(world):
    tell(row(world))
    other = with_pack(World(**(vars(world) | {"artifact": world.another(2)})))
    told = tell(row(other, found(other, 99)))
    assert "log is another" in told["refused"][0]["detail"]
    assert known(world) == [found(world)]


def test_an_artifact_keeps_its_latest_reports_and_month_old_ones_are_swept(world):
    for n in range(KEPT + 5):
        assert tell(row(world, found(world, n + 1), log=uuid4().hex))["kept"] == 1
    assert sorted(one.n_answers for one in known(world)) == list(range(6, KEPT + 6))
    with tenant_scope(world.tenant.id):
        one = PackReport.objects.first()
        with connection.cursor() as cursor:
            cursor.execute("UPDATE serving_packreport SET told_at = now() - interval '31 days' WHERE id = %s", [one.id])
    assert forget_pack_reports() >= 1
    assert len(known(world)) == KEPT - 1


def test_only_the_runner_token_opens_the_address(world):
    body = {"server": "srv_x", "rows": [row(world)]}
    assert world.call("POST", "/internal/runner/pack-feedback", body).status_code == 401
    assert world.call("GET", "/internal/runner/pack-feedback").status_code == 405


def test_a_run_on_a_runner_comes_with_a_grant_that_reports_and_opens_nothing(world, monkeypatch):
    with tenant_scope(world.tenant.id):
        artifact = Artifact.objects.of_tenant(world.tenant.id).get(id=world.artifact.id)
    with pytest.raises(Unavailable, match="No runner"):
        run_inputs(artifact, ["x"], wait_s=0.0)
    with tenant_scope(world.tenant.id):
        job = RunnerJob.objects.get(kind="infer", tenant_id=world.tenant.id)
    grant = get_json(world.tenant.id, job.payload_sha256)["grant"]
    told = FeedbackRow(grant=grant, log="a" * 32, feedback=found(world).to_json()).to_json()
    assert tell(told) == {"kept": 1, "refused": []}
    assert known(world) == [found(world)]
    with pytest.raises(BadGrant, match="too old"):
        read_grant(grant, grant_key(settings.KOLM_RUNNER_TOKEN), now=1.0)
