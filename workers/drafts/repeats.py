"""Drafts that were written for this very prompt: the same words, to the same revision, under the same sampling policy.
They are samples of the distribution at hand, so the token rule's min(1, p/q) is 1 at every token and there is nothing
to ask. Where part of what the teacher wrote then is not here (refused, a duplicate, or picked and not kept), they are
off by at most that share."""

from collections.abc import Sequence
from uuid import UUID

from backend.compiles.models import Slice
from backend.domain.drafts.vocabulary import Certificate, DraftVerdict, StoredDraft, Verification
from backend.domain.spec.parsing import Spec
from backend.drafts.cache import NearSource, SourcePrompt, prompt_mac
from workers.candidates.slices import slice_spec, slice_text
from workers.teachers.prompts.candidate_and_label import candidate_request
from workers.teachers.protocol import TeacherIdentity

MOST_MISSING_PPM = 200_000  # with more of the sample gone, the teacher is asked


def source_prompt(spec: Spec, slice_row: Slice, *, temperature: float, exemplars: Sequence[str]) -> SourcePrompt:
    """The slice's prompt as a source remembers it."""
    request = candidate_request(
        spec, slice_spec(slice_row), n=1, temperature=temperature, seed=None, exemplars=exemplars
    )
    messages = tuple((message.role, message.content) for message in request.messages)
    return SourcePrompt(slice_text=slice_text(spec, slice_row), messages=messages)


def repeats(
    tenant_id: UUID,
    spec: Spec,
    slice_row: Slice,
    near: Sequence[NearSource],
    identity: TeacherIdentity,
    exemplars: Sequence[str],
) -> list[NearSource]:
    """The sources that hold a sample of this prompt; none where nobody says beforehand which revision will answer."""
    if not identity.revision:
        return []
    prompt = source_prompt(spec, slice_row, temperature=slice_row.temperature_ppm / 1_000_000, exemplars=exemplars)
    mac = prompt_mac(tenant_id, spec.family, prompt)
    return [source for source in near if source.prompt_mac == mac and source.missing_ppm <= MOST_MISSING_PPM]


def accept_all(drafts: Sequence[StoredDraft]) -> Verification:
    """The verification that accepts all of these drafts."""
    verdicts = tuple(
        DraftVerdict(
            draft_id=draft.draft_id,
            is_accepted=True,
            text=draft.text,
            n_tokens=draft.n_tokens,
            kept_tokens=draft.n_tokens,
            certificate=Certificate.EXACT,
            tv_bound=0.0,
        )
        for draft in drafts
    )
    return Verification(verdicts=verdicts)
