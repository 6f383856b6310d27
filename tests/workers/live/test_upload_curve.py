"""The worker's half of an upload's learning curve: measured once with the real embedder, and a reason where it cannot
be."""

import json
from typing import Any

import pytest

from backend.compiles.models import Upload
from backend.compiles.uploads.curves import curve_of
from backend.compiles.uploads.rows import UploadPurpose, store_upload
from backend.rest.new_ids import new_uuid7
from backend.tenants.isolation import tenant_scope
from backend.tenants.models import Tenant
from tests.factories import make_tenant
from workers.live import upload_curve
from workers.tasks import measure_upload

pytestmark = pytest.mark.usefixtures("committed_db")

WORDS = {
    "refund": ("give me my money back", "refund the order", "I want to be paid back for it", "return the payment"),
    "status": ("where is my parcel", "when does the order arrive", "track the shipment", "has it been sent yet"),
}


@pytest.fixture
def tenant() -> Tenant:
    return make_tenant()


def store(tenant: Tenant, rows: list[dict[str, Any]]) -> Upload:
    data = "\n".join(map(json.dumps, rows)).encode()
    with tenant_scope(tenant.id):
        return store_upload(tenant.id, UploadPurpose.EXAMPLES, data)


def tickets() -> list[dict[str, Any]]:
    return [
        {"input": f"{text}, number {n}", "output": label}
        for label, texts in WORDS.items()
        for text in texts
        for n in range(12)
    ]


def again(tenant: Tenant, upload: Upload) -> Upload:
    with tenant_scope(tenant.id):
        return Upload.objects.get(id=upload.id)


def test_examples_are_measured_and_kept_and_not_measured_again(tenant: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    upload = store(tenant, tickets())
    measure_upload(str(tenant.id), str(upload.id))
    with tenant_scope(tenant.id):
        answer = curve_of(again(tenant, upload))
    assert answer.curve is not None
    assert answer.curve.n_train == 96
    assert answer.curve.points[-1].accuracy > 0.9
    monkeypatch.setattr(upload_curve, "load_embedder", None)
    measure_upload(str(tenant.id), str(upload.id))
    assert again(tenant, upload).learning_curve == {**again(tenant, upload).learning_curve, "n_train": 96}


def test_rows_that_are_too_few_keep_the_reason(tenant: Tenant) -> None:
    upload = store(tenant, tickets()[:10])
    measure_upload(str(tenant.id), str(upload.id))
    with tenant_scope(tenant.id):
        answer = curve_of(again(tenant, upload))
    assert answer.reason.startswith("A learning curve takes 40 examples")
    assert not answer.is_pending


def test_a_failure_of_ours_is_a_reason_and_is_logged(
    tenant: Tenant, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(name: str | None) -> None:
        raise RuntimeError("no such weights")

    upload = store(tenant, tickets())
    monkeypatch.setattr(upload_curve, "load_embedder", broken)
    measure_upload(str(tenant.id), str(upload.id))
    kept = again(tenant, upload).learning_curve
    assert kept == {"reason": "Something broke on our side while it was measured; it is logged."}
    assert "no such weights" in caplog.text


def test_an_upload_of_another_team_or_of_nobody_changes_nothing(tenant: Tenant) -> None:
    upload = store(tenant, tickets())
    measure_upload(str(make_tenant().id), str(upload.id))
    measure_upload(str(tenant.id), str(new_uuid7()))
    assert again(tenant, upload).learning_curve is None
