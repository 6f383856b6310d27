"""Drafts that were written for this very prompt: the same words, to the same revision, under the same sampling policy.
They are samples of the distribution at hand, so the token rule's min(1, p/q) is 1 at every token and there is nothing
to ask. Where part of what the teacher wrote then is not here (refused, a duplicate, or picked and not kept), they are
off by at most that share."""

from collections.abc import Sequence
from uuid import UUID

from backend.compiles.models import Compile, Slice
from backend.domain.drafts.offer_plan import OfferPlan
from backend.domain.drafts.vocabulary import Certificate, DraftVerdict, StoredDraft, Verification
from backend.domain.spec.parsing import Spec
from backend.drafts.cache import NearSource, SourcePrompt, prompt_mac
from workers.candidates.slices import slice_spec, slice_text
from workers.drafts.admission import add_candidates, with_bounds
from workers.drafts.records import record_verdicts, save_repeats
from workers.step.durable import CompileRun
from workers.teachers.prompts.candidate_and_label import candidate_request
from workers.teachers.protocol import TeacherIdentity

MOST_MISSING_PPM = 200_000  # with more of the sample gone, the teacher is asked


def source_prompt(spec: Spec, slice_row: Slice, *, temperature: float, exemplars: Sequence[str]) -> SourcePrompt:
    """The slice's prompt as a source remembers it."""
    text = slice_text(slice_row)
    part = slice_spec(slice_row)
    request = candidate_request(spec, part, n=1, temperature=temperature, seed=None, exemplars=exemplars)
    messages = tuple((message.role, message.content) for message in request.messages)
    return SourcePrompt(slice_text=text, messages=messages)


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


def take_repeats(
    run: CompileRun,
    compile: Compile,
    slice_row: Slice,
    plan: OfferPlan,
    drafts: Sequence[StoredDraft],
    heldout: frozenset[str],
) -> OfferPlan:
    """Add the drafts of this very prompt, in the transaction of the plan, and count them on it."""
    if not drafts:
        return plan
    verification = with_bounds(_accept_all(drafts), drafts, plan.missing_ppm)
    slice_row.n_from_drafts = add_candidates(run, compile, slice_row, verification, drafts, heldout)
    save_repeats(run, plan, verification, drafts)
    return record_verdicts(plan, verification, slice_row.n_from_drafts)


def _accept_all(drafts: Sequence[StoredDraft]) -> Verification:
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
