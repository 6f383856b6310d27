"""The data that a spec points at, resolved: gold examples and captures, inline or uploaded, and the split that holds
gold out."""

import hashlib
import hmac
from base64 import b64decode
from uuid import UUID

from django.conf import settings

from backend.compiles.models import GOLD_SALT, GoldSalt
from backend.compiles.uploads.rows import UploadPurpose, load_upload
from backend.domain.answers.candidates import text_key
from backend.domain.spec.gold import GoldSplit, split_gold
from backend.domain.spec.parsing import Example, LabelOutput, Spec, check_gold
from backend.tenants.sealing import seal, unseal


def load_gold(tenant_id: UUID, spec: Spec) -> list[Example]:
    """All gold pairs of the spec, checked against its labels. Raises InvalidSpec.

    Those of a spec without an upload were checked when it was parsed: to do it again would double what the most
    expensive request costs."""
    examples = list(spec.examples.inline)
    if spec.examples.upload is not None:
        pointer = "/examples/upload"
        rows = load_upload(tenant_id, spec.examples.upload, UploadPurpose.EXAMPLES, pointer=pointer)
        examples += [Example(**row) for row in rows]
        check_gold(spec, examples)
    return examples


def split(tenant_id: UUID, spec: Spec, examples: list[Example]) -> GoldSplit[Example]:
    """The tenant's own salted split: the same examples fall on the same side in every compile of this tenant and name,
    and nobody outside can tell which side a text is on. Examples that name their side decide it themselves."""
    row = GoldSalt.objects.of_tenant(tenant_id).filter(name=spec.name).first()
    salt = first_salt(tenant_id, spec.name) if row is None else _open(row)
    is_stratified = isinstance(spec.output, LabelOutput)
    return split_gold(examples, salt=salt, holdout=spec.examples.holdout, is_stratified=is_stratified)


def keep_salt(tenant_id: UUID, name: str) -> None:
    """Write the salt of a name down, once: the sealing key that it comes from will be another one day."""
    sealed = seal(tenant_id, first_salt(tenant_id, name), purpose=GOLD_SALT)
    GoldSalt.objects.bulk_create([GoldSalt(tenant_id=tenant_id, name=name, sealed=sealed)], ignore_conflicts=True)


def first_salt(tenant_id: UUID, name: str) -> bytes:
    """The salt of a name that has none written down."""
    key = b64decode(settings.KOLM_SEALING_KEY)
    return hmac.digest(key, f"gold-split/{tenant_id}/{name}".encode(), "sha256")


def _open(row: GoldSalt) -> bytes:
    return unseal(row.tenant_id, bytes(row.sealed), purpose=GOLD_SALT)


def load_captures(tenant_id: UUID, spec: Spec) -> list[str]:
    """Production inputs without duplicates, at most `captures.max` of them: a fixed pseudo-random sample when there are
    more."""
    if spec.captures is None:
        return []
    texts = list(spec.captures.inline)
    if spec.captures.upload is not None:
        pointer = "/captures/upload"
        rows = load_upload(tenant_id, spec.captures.upload, UploadPurpose.CAPTURES, pointer=pointer)
        texts += [row["input"] for row in rows]
    unique = {text_key(text): text for text in texts}
    seed = str(spec.sampling.seed).encode()
    order = sorted(unique, key=lambda key: hashlib.blake2b(key.encode(), key=seed).digest())
    return [unique[key] for key in sorted(order[: spec.captures.max])]
