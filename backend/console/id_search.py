"""The search for a pasted public id: an id says by its prefix what it is the id of."""

import re
from urllib.parse import urlencode
from uuid import UUID

from django.urls import reverse

from backend.compiles.models import Candidate, Compile, Slice, StepRun, Upload
from backend.domain.errors import NotFound
from backend.domain.ids import Prefix, decode_id, encode_id

_ID = re.compile(r"([a-z]{2,5})_[0-9a-hjkmnp-tv-z]{26}")
_LISTS = {  # shown in a list of their own, not on a page each
    Prefix.API_KEY: "console:api_keys",
    Prefix.DRAFT: "console:drafts",
    Prefix.TEACHER_KEY: "console:settings",
    Prefix.MEMBER: "console:team",
}


def is_public_id(text: str) -> bool:
    return _ID.fullmatch(text) is not None


def address_of(tenant_id: UUID, text: str) -> str:
    """The page of this tenant's object with this id. Raises NotFound, also for another tenant's."""
    head = text.partition("_")[0]
    known = {prefix.value: prefix for prefix in Prefix}
    if not is_public_id(text) or head not in known:
        raise NotFound(f"There is nothing with the id {text[:60]!r}.")
    prefix = known[head]
    if prefix in _LISTS:
        return reverse(_LISTS[prefix])
    compile_id = _compile_of(tenant_id, prefix, decode_id(prefix, text))
    if compile_id is None:
        raise NotFound(f"There is nothing with the id {text!r} in this tenant.")
    if prefix == Prefix.ARTIFACT:
        return reverse("console:artifact", args=[text])
    public_id = encode_id(Prefix.COMPILE, compile_id)
    if prefix in (Prefix.CANDIDATE, Prefix.SLICE):
        return f"{reverse('console:compile_data', args=[public_id])}?{urlencode({'id': text})}"
    return reverse("console:compile", args=[public_id])


def _compile_of(tenant_id: UUID, prefix: Prefix, row_id: UUID) -> UUID | None:
    """The compile that the object belongs to; None where this tenant has no such object."""
    from backend.artifacts.models import Artifact, Receipt
    from backend.runner_jobs.models import RunnerJob

    match prefix:
        case Prefix.COMPILE:
            return Compile.objects.of_tenant(tenant_id).filter(id=row_id).values_list("id", flat=True).first()
        case Prefix.CANDIDATE | Prefix.SLICE | Prefix.STEP:
            model = {Prefix.CANDIDATE: Candidate, Prefix.SLICE: Slice, Prefix.STEP: StepRun}[prefix]
            return model.objects.of_tenant(tenant_id).filter(id=row_id).values_list("compile_id", flat=True).first()  # type: ignore[attr-defined, no-any-return]
        case Prefix.ARTIFACT | Prefix.RECEIPT:
            kept = {Prefix.ARTIFACT: Artifact, Prefix.RECEIPT: Receipt}[prefix]
            return kept.objects.of_tenant(tenant_id).filter(id=row_id).values_list("compile_id", flat=True).first()  # type: ignore[attr-defined, no-any-return]
        case Prefix.RUNNER_JOB:
            jobs = RunnerJob.objects.filter(tenant_id=tenant_id, id=row_id)
            return jobs.values_list("compile_id", flat=True).first()
        case Prefix.UPLOAD:
            public_id = encode_id(prefix, row_id)
            if not Upload.objects.of_tenant(tenant_id).filter(id=row_id).exists():
                return None
            for place in ("examples__upload", "captures__upload", "teacher__recording"):
                compiles = Compile.objects.of_tenant(tenant_id).filter(**{f"spec__{place}": public_id})
                if (compile_id := compiles.order_by("-created_at").values_list("id", flat=True).first()) is not None:
                    return compile_id
    return None
