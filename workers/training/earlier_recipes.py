"""The start of a recipe pack: the pack of the family's newest artifact that fits the tokenizer, what servers have
reported of it since, and an epoch of the registry where the spec asks for one."""

import io
import zipfile
from dataclasses import dataclass

from backend.artifacts.models import Artifact
from backend.blobs import get_blob, put_blob, put_jsonl
from backend.compiles.models import Compile
from backend.domain.errors import NotFound
from backend.domain.recipes.pack import MAX_PACK_BYTES, InvalidPack, read_pack
from backend.registry.epochs import epoch_blob
from backend.serving.runners.pack_feedback import feedback_of
from workers.step.durable import CompileRun

N_LOOKED_AT = 3  # newest artifacts of the family: the newest may be of another base


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierRecipes:
    """Digests of blobs; "" for none."""

    pack: str = ""
    feedback: str = ""
    epoch: str = ""


def earlier_recipes(run: CompileRun, tokenizer_sha256: str) -> EarlierRecipes:
    """Gather them, inside a fenced transaction."""
    epoch = "" if run.spec.recipes.registry == "off" else epoch_blob(run.tenant_id)
    of_family = Compile.objects.filter(tenant_id=run.tenant_id, family=run.spec.family).values("id")
    newest = Artifact.objects.filter(tenant_id=run.tenant_id, compile_id__in=of_family, revoked_at=None)
    for artifact in newest.order_by("-created_at")[:N_LOOKED_AT]:
        data = _pack_of(run, artifact, tokenizer_sha256)
        if data is None:
            continue
        reported = [row.to_json() for row in feedback_of(run.tenant_id, [artifact.sha256])]
        feedback = put_jsonl(run.tenant_id, reported) if reported else ""
        return EarlierRecipes(pack=put_blob(run.tenant_id, data), feedback=feedback, epoch=epoch)
    return EarlierRecipes(epoch=epoch)


def _pack_of(run: CompileRun, artifact: Artifact, tokenizer_sha256: str) -> bytes | None:
    """The recipes.json; None where it has no recipe, or is of other tokens."""
    try:
        with zipfile.ZipFile(io.BytesIO(get_blob(run.tenant_id, artifact.sha256))) as archive:
            if archive.getinfo("recipes.json").file_size > MAX_PACK_BYTES:
                return None
            data = archive.read("recipes.json")
        return data if read_pack(data, tokenizer_sha256=tokenizer_sha256).recipes else None
    except (NotFound, KeyError, InvalidPack):
        return None
