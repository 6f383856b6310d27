"""The signing key changes while a compile is under way: its artifact is trusted all the same, by the new key alone."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from backend.artifacts.models import Artifact, SigningKey
from backend.artifacts.signing import keyring, public_raw
from backend.blobs import get_blob
from backend.compiles.models import Compile
from backend.domain.artifact import kolm_verify
from backend.domain.artifact.receipts import keyid
from backend.domain.lifecycle import CompileStatus
from backend.tenants.isolation import tenant_scope
from deploy.embedded.stack import EmbeddedServices
from tests.compile_factories import fresh
from tests.key_pieces import as_owner, run_as_owner, signing_key_of_its_own
from tests.workers.answer_helpers import EASY, advance, at_distillation, bring, json_answer, json_spec
from tests.workers.training.test_recipes import ON, PACK, at_pack_job, packed, with_observations

pytestmark = pytest.mark.usefixtures("committed_db")


def before_packaging() -> Compile:
    row = at_pack_job(with_observations(at_distillation(json_answer, **json_spec(gate=EASY, recipes=ON))))
    bring(row, PACK, packed(row))
    return row


@pytest.mark.parametrize("how", ["retired", "leaked"])
def test_a_compile_that_began_under_the_old_key(how: str, tmp_path: Path, embedded_services: EmbeddedServices) -> None:
    with signing_key_of_its_own(tmp_path, embedded_services):
        row, old = before_packaging(), keyid(public_raw())
        run_as_owner(embedded_services, "rotate_signing_key", *(["--leaked", old] if how == "leaked" else []))
        with as_owner(embedded_services):  # as if that had been long ago: the old key's window is closed
            SigningKey.objects.exclude(not_after=None).update(not_after=datetime.now(UTC) - timedelta(days=30))
        advance(row)
        assert fresh(row).status == CompileStatus.SUCCEEDED
        with tenant_scope(row.tenant_id):
            artifact = Artifact.objects.of_tenant(row.tenant_id).get(compile_id=row.id)
        verdict = kolm_verify.verify(get_blob(row.tenant_id, artifact.sha256), keyring())
        assert (verdict.status, verdict.keyid) == ("trusted", keyid(public_raw()))


def test_what_this_deployment_would_not_trust_itself_is_not_published(
    tmp_path: Path, embedded_services: EmbeddedServices
) -> None:
    with signing_key_of_its_own(tmp_path, embedded_services):
        row = before_packaging()
        with as_owner(embedded_services):
            SigningKey.objects.filter(keyid=keyid(public_raw())).update(revoked_at=datetime.now(UTC))
        advance(row)
        assert fresh(row).status == CompileStatus.RUNNING
        with tenant_scope(row.tenant_id):
            assert not Artifact.objects.of_tenant(row.tenant_id).filter(compile_id=row.id).exists()
        with as_owner(embedded_services):
            SigningKey.objects.filter(keyid=keyid(public_raw())).update(revoked_at=None)
        advance(row)
        assert fresh(row).status == CompileStatus.SUCCEEDED
