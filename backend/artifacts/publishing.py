"""Publishing: a row for the bytes that were just built, with the next version of its name, in the transaction that ends
the compile."""

import io
import json
import zipfile

from django.db import connection
from django.db.models import Max

from backend.artifacts.models import Artifact
from backend.artifacts.shapes import ArtifactNotice
from backend.compiles.events import touch
from backend.compiles.models import Compile
from backend.domain.webhooks.events import EventType
from backend.webhooks.emit import emit


def publish(compile: Compile, data: bytes, sha256: str) -> Artifact:
    """Make the artifact of a locked compile; a second call finds the first one's row."""
    existing = Artifact.objects.filter(tenant_id=compile.tenant_id, compile_id=compile.id).first()
    if existing is not None:
        return existing
    _wait_for_turn(compile)
    newest = (
        Artifact.objects.filter(tenant_id=compile.tenant_id, name=compile.name).aggregate(n=Max("version"))["n"] or 0
    )
    assert compile.k_score_ppm is not None
    artifact = Artifact.objects.create(
        tenant_id=compile.tenant_id,
        compile_id=compile.id,
        name=compile.name,
        version=newest + 1,
        sha256=sha256,
        size_bytes=len(data),
        manifest=_manifest(data),
        k_score_ppm=compile.k_score_ppm,
        evaluation=compile.evaluation or {},
    )
    touch(compile, artifact_id=artifact.id)
    emit(compile.tenant_id, EventType.ARTIFACT_PUBLISHED, {"object": ArtifactNotice.of(artifact)})
    return artifact


def _wait_for_turn(compile: Compile) -> None:
    """Lock the versions of this name until the transaction ends, so that nobody else counts them."""
    with connection.cursor() as cursor:
        name = f"artifact/{compile.tenant_id}/{compile.name}"
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [name])


def _manifest(data: bytes) -> dict[str, object]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        value: dict[str, object] = json.loads(archive.read("manifest.json"))
        return value
