"""A slice as a verifier sees it, and what a fresh candidate of it is expected to cost."""

from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

from backend.compiles.models import Slice
from backend.domain.drafts.costs import fresh_microusd
from backend.domain.drafts.vocabulary import StoredDraft
from backend.domain.money.pricing import TeacherPrice
from backend.domain.planning.teacher_estimates import CHOICES_PER_CALL
from backend.domain.spec.parsing import Spec
from backend.drafts.cache import NearSource, prompts_of
from workers.candidates.slices import slice_spec
from workers.teachers.prompts.candidate_and_label import candidate_request
from workers.teachers.protocol import Message
from workers.teachers.token_estimates import estimate_tokens
from workers.teachers.verifiers.protocol import SamplingPolicy, VerificationContext

ROUNDED_OFF = 0.5  # micro-USD that the whole part of a candidate's share of its call lacks on the mean
LEAST_BILLED = 5  # micro-USD a draft; costs are kept in whole ones, and less is too coarse to go by


def with_old_prompts(
    tenant_id: UUID, spec: Spec, context: VerificationContext, source_ids: Sequence[UUID]
) -> VerificationContext:
    """The slice, together with what the teacher was sent when these sources' drafts were written."""
    prompts = prompts_of(tenant_id, spec.family, source_ids)
    old = {
        id: tuple(Message(role=role, content=content) for role, content in prompt.messages)  # type: ignore[arg-type]
        for id, prompt in prompts.items()
    }
    return replace(context, old_messages=old)


def verification_context(spec: Spec, slice_row: Slice, exemplars: Sequence[str]) -> VerificationContext:
    """The slice as a verifier sees it."""
    temperature = slice_row.temperature_ppm / 1_000_000
    request = candidate_request(
        spec, slice_spec(slice_row), n=CHOICES_PER_CALL, temperature=temperature, seed=None, exemplars=exemplars
    )
    return VerificationContext(request=request, policy=SamplingPolicy(temperature=temperature))


def fresh_cost(
    context: VerificationContext, price: TeacherPrice, *, drafts: Sequence[StoredDraft], near: Sequence[NearSource] = ()
) -> float:
    """Expected micro-USD of one fresh candidate: what the teacher billed for these drafts at this very price, with as
    many choices a call and as much thinking as it had; else by their tokens and the prompt of the slice."""
    at_this_price = {source.source_id for source in near if source.price_version == price.version}
    billed = [draft.cost_microusd for draft in drafts if draft.source_id in at_this_price]
    if billed and sum(billed) >= LEAST_BILLED * len(billed):
        return sum(billed) / len(billed) + ROUNDED_OFF
    prompt_tokens = sum(estimate_tokens(message.content) for message in context.request.messages)
    output_tokens = sum(draft.n_tokens for draft in drafts) / len(drafts)
    return fresh_microusd(
        prompt_tokens=prompt_tokens, n_per_call=CHOICES_PER_CALL, output_tokens=output_tokens, price=price
    )
