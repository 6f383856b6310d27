"""Ways of offering drafts to a teacher, and which of them is expected to pay. Decides, and asks nothing."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from backend.compiles.models import Slice
from backend.domain.drafts.calibration import Curve
from backend.domain.drafts.costs import Quote, fresh_microusd
from backend.domain.drafts.policy import Decision, Offerable, decide
from backend.domain.drafts.vocabulary import Arm, StoredDraft, Strategy
from backend.domain.money.pricing import TeacherPrice
from backend.domain.planning.estimates import CHOICES_PER_CALL
from backend.domain.spec.parsing import Spec
from backend.drafts.cache import NearSource, prompts_of
from backend.drafts.calibrations import curve_of, ledger_of
from backend.drafts.models import Calibration
from workers.candidates.slices import slice_spec
from workers.teachers.judges.draft_judge import JudgeVerifier
from workers.teachers.prompts.candidate_and_label import candidate_request, head, slice_lines
from workers.teachers.protocol import Message, TeacherCaps
from workers.teachers.token_estimates import estimate_tokens
from workers.teachers.verifiers.acceptance_rules import Rule
from workers.teachers.verifiers.logprob_verifier import LogprobVerifier
from workers.teachers.verifiers.protocol import DraftVerifier, SamplingPolicy, VerificationContext

MAX_SHOWN = 96  # drafts of one slice, whatever they promise


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """One way of offering drafts to the teacher, decided but not carried out. `drafts` are the ones that may be shown;
    the decision's indices are into them."""

    strategy: Strategy
    drafts: tuple[StoredDraft, ...]
    decision: Decision
    quote: Quote
    curve: Curve
    fresh_microusd: float


def verifiers_of(spec: Spec, caps: TeacherCaps, policy: SamplingPolicy) -> tuple[DraftVerifier, ...]:
    """The verifications that this teacher can be asked for, the strongest certificate first."""
    wanted = spec.draft_cache.verify
    known: dict[str, DraftVerifier] = {
        "logprobs": LogprobVerifier(caps, rule=Rule.STORED),
        "judge": JudgeVerifier(),
    }
    chosen = known.values() if wanted == "auto" else [known[wanted]] if wanted in known else []
    can_judge = spec.teacher.provider != "replay"  # a recording answers nothing that was not asked before
    return tuple(v for v in chosen if v.capable(caps, policy) and (can_judge or v.strategy != Strategy.JUDGE))


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


def verification_context(spec: Spec, slice_row: Slice, *, n: int, exemplars: Sequence[str] = ()) -> VerificationContext:
    """The slice as a verifier sees it."""
    temperature = slice_row.temperature_ppm / 1_000_000
    part = slice_spec(slice_row)
    return VerificationContext(
        request=candidate_request(spec, part, n=n, temperature=temperature, seed=None, exemplars=exemplars),
        policy=SamplingPolicy(temperature=temperature),
        head=tuple(head(spec)),
        slice_lines=tuple(slice_lines(part)),
    )


def fresh_cost(context: VerificationContext, price: TeacherPrice, *, output_tokens: float) -> float:
    """Expected micro-USD of one fresh candidate of this slice."""
    prompt_tokens = sum(estimate_tokens(message.content) for message in context.request.messages)
    return fresh_microusd(
        prompt_tokens=prompt_tokens, n_per_call=CHOICES_PER_CALL, output_tokens=output_tokens, price=price
    )


def propose(
    context: VerificationContext,
    verifiers: Sequence[DraftVerifier],
    drafts: Mapping[Strategy, Sequence[StoredDraft]],
    calibrations: Mapping[Strategy, Calibration],
    price: TeacherPrice,
    *,
    n_wanted: int,
    seed: str,
) -> Proposal | None:
    """The first way, in the order of the verifiers, that is expected to pay; else one that is worth a probe; else the
    first, which shows nothing and says why. None without drafts or verifiers."""
    proposals = [
        _proposal(context, verifier, drafts[verifier.strategy], calibrations[verifier.strategy], price, n_wanted, seed)
        for verifier in verifiers
        if drafts[verifier.strategy]
    ]
    for arm in (Arm.OFFERED, Arm.PROBED):
        for proposal in proposals:
            if proposal.decision.arm == arm:
                return proposal
    return proposals[0] if proposals else None


def _proposal(
    context: VerificationContext,
    verifier: DraftVerifier,
    drafts: Sequence[StoredDraft],
    row: Calibration,
    price: TeacherPrice,
    n_wanted: int,
    seed: str,
) -> Proposal:
    drafts = tuple(drafts[:MAX_SHOWN])
    quote = verifier.quote(context, drafts, price)
    fresh = fresh_cost(context, price, output_tokens=sum(d.n_tokens for d in drafts) / len(drafts))
    curve = curve_of(row)
    decision = decide(
        curve,
        offerables(drafts, quote, source_order(drafts)),
        n_wanted=n_wanted,
        fresh_microusd=fresh,
        overhead_microusd=quote.overhead_microusd,
        ledger=ledger_of(row),
        rng=random.Random(f"{seed}/{verifier.strategy}"),
    )
    return Proposal(
        strategy=verifier.strategy, drafts=drafts, decision=decision, quote=quote, curve=curve, fresh_microusd=fresh
    )


def source_order(drafts: Sequence[StoredDraft]) -> dict[UUID, int]:
    """A number for each source, in the order they come."""
    return {id: at for at, id in enumerate(dict.fromkeys(draft.source_id for draft in drafts))}


def offerables(drafts: Sequence[StoredDraft], quote: Quote, order: Mapping[UUID, int]) -> list[Offerable]:
    """Drafts as the decision sees them: which source, how far, what showing one costs: for all of a source the same,
    because to prefer its short drafts would be to choose by text."""
    costs: dict[UUID, list[float]] = {}
    for draft, cost in zip(drafts, quote.per_draft_microusd, strict=True):
        costs.setdefault(draft.source_id, []).append(cost)
    mean = {id: sum(each) / len(each) for id, each in costs.items()}
    return [
        Offerable(
            index=i,
            source=order[draft.source_id],
            distance=draft.distance,
            verify_microusd=mean[draft.source_id],
        )
        for i, draft in enumerate(drafts)
    ]


def offered_by(strategy: Strategy, near: Sequence[NearSource]) -> tuple[StoredDraft, ...]:
    """The drafts that a strategy may show. An exact rule takes them as they were drawn, picked ones among them; a judge
    is shown what no selection kept."""
    drafts = [draft for source in near for draft in source.drafts]
    return tuple(draft for draft in drafts if strategy == Strategy.LOGPROBS or not draft.is_kept)
