"""GET /v1/uploads/{upload}/learning_curve: pending until a worker has answered, then the curve or a reason."""

import json
import time
from typing import Any

import pytest

from backend.compiles.models import Upload
from backend.compiles.uploads import curves
from backend.compiles.uploads.rows import UploadPurpose, store_upload
from backend.domain.labeling.learning_curves import CurvePoint
from backend.domain.planning.own_curves import OwnCurve
from backend.queue import TaskName
from backend.tenants.isolation import tenant_scope
from tests.compile_factories import make_upload, public_id
from tests.factories import bearer, make_api_key, make_tenant

pytestmark = pytest.mark.django_db


@pytest.fixture
def tenant():
    return make_tenant()


@pytest.fixture
def upload(tenant) -> Upload:
    rows = [{"input": f"message {n}", "output": "ab"[n % 2]} for n in range(60)]
    with tenant_scope(tenant.id):
        return store_upload(tenant.id, UploadPurpose.EXAMPLES, "\n".join(map(json.dumps, rows)).encode())


@pytest.fixture
def wake_ups(monkeypatch) -> list[tuple[TaskName, dict[str, str]]]:
    sent: list[tuple[TaskName, dict[str, str]]] = []
    monkeypatch.setattr(curves, "enqueue", lambda name, **ids: sent.append((name, ids)))
    return sent


def ask(client, tenant, upload: Upload, *, callbacks: Any) -> dict[str, Any]:
    with callbacks(execute=True):
        answer = client.get(f"/v1/uploads/{public_id(upload)}/learning_curve", headers=bearer(make_api_key(tenant)))
    assert answer.status_code == 200, answer.content
    return answer.json()


def measured() -> OwnCurve:
    points = tuple(CurvePoint(n=n, n_rows=60, accuracy=0.5 + n / 120, loss=1 - n / 60) for n in (12, 24, 36, 48))
    return OwnCurve(points=points, n_train=60, n_measured=60, n_labels=2)


def test_a_worker_is_asked_once_and_again_after_a_while(
    client, tenant, upload, wake_ups, django_capture_on_commit_callbacks
):
    for _ in range(3):
        body = ask(client, tenant, upload, callbacks=django_capture_on_commit_callbacks)
        assert (body["status"], body["points"], body["n_train"]) == ("pending", [], None)
    assert wake_ups == [(TaskName.UPLOAD_CURVE, {"tenant_id": str(tenant.id), "upload_id": str(upload.id)})]
    with tenant_scope(tenant.id):
        Upload.objects.filter(id=upload.id).update(learning_curve={"asked_at": time.time() - 61})
    ask(client, tenant, upload, callbacks=django_capture_on_commit_callbacks)
    assert len(wake_ups) == 2


def test_a_measured_curve_is_shown_with_what_more_rows_bring(
    client, tenant, upload, wake_ups, django_capture_on_commit_callbacks
):
    curves.keep_curve(tenant.id, upload.id, measured())
    body = ask(client, tenant, upload, callbacks=django_capture_on_commit_callbacks)
    assert (body["object"], body["status"], body["upload"]) == ("learning_curve", "measured", public_id(upload))
    assert body["points"][0] == {"n": 12, "accuracy_ppm": 600_000}
    assert [one["n"] for one in body["expected"]] == [60, 120, 240]
    for one in body["expected"]:
        assert one["accuracy_low_ppm"] <= one["accuracy_ppm"] <= one["accuracy_high_ppm"] <= 1_000_000
    assert wake_ups == []


def test_why_there_is_none_is_said(client, tenant, upload, wake_ups, django_capture_on_commit_callbacks):
    curves.keep_reason(tenant.id, upload.id, "Too few.")
    body = ask(client, tenant, upload, callbacks=django_capture_on_commit_callbacks)
    assert (body["status"], body["reason"], body["expected"]) == ("not_possible", "Too few.", [])
    captures = make_upload(tenant)
    body = ask(client, tenant, captures, callbacks=django_capture_on_commit_callbacks)
    assert body["status"] == "not_possible"
    assert wake_ups == []


def test_an_upload_of_another_team_is_not_there(client, upload):
    secret = make_api_key(make_tenant())
    assert client.get(f"/v1/uploads/{public_id(upload)}/learning_curve", headers=bearer(secret)).status_code == 404
