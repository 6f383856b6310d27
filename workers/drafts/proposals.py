"""Ways of offering drafts to a teacher, and which of them is expected to pay. Decides, and asks nothing: before the
first question about a slice (`propose`), and after a probe about the rest (`decide_by`)."""

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from uuid import UUID

from backend.compiles.models import Slice
from backend.domain.answers.candidates import text_key
from backend.domain.drafts.calibration import Curves, SourceCount, predict_each
from backend.domain.drafts.costs import Quote
from backend.domain.drafts.offer_plan import PlannedDraft
from backend.domain.drafts.policy import Decision, Offerable, decide
from backend.domain.drafts.pool_policy import PoolDecision, decide_pool
from backend.domain.drafts.vocabulary import CERTIFIES, Arm, StoredDraft, Strategy
from backend.domain.money.pricing import TeacherPrice
from backend.domain.spec.defaults import buys_in_rounds
from backend.domain.spec.parsing import Spec, judged_by
from backend.drafts.cache import NearSource
from backend.drafts.calibrations import calibration, curves_of, ledger_of
from backend.drafts.models import Calibration, Scope
from workers.drafts.delegates import standing_of
from workers.drafts.described_slices import described_slices
from workers.drafts.fresh_costs import fresh_cost, verification_context, with_old_prompts
from workers.drafts.gate_verification import certified_threshold_of
from workers.scoring.verifier import check_text, gate_reasons
from workers.step.teacher_profile import caps_of
from workers.teachers.judges.judge_quotes import quote_pool, request_tokens
from workers.teachers.verifiers.acceptance_rules import Rule
from workers.teachers.verifiers.gate_verifier import GateVerifier
from workers.teachers.verifiers.logprob_verifier import LogprobVerifier
from workers.teachers.verifiers.protocol import DraftVerifier, SamplingPolicy, VerificationContext

MAX_SHOWN = 96  # drafts of one slice, whatever they promise
MOST_POOLED = 2  # times what is wanted
QUOTED_ACCEPTANCE = 0.9  # runs of accepted numbers are short below it, and few at any other


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanContext:
    """The values that a plan depends on beside the slice and what is near it. `heldout` are the keys of texts that no
    candidate may repeat, `known_keys` says which of some keys are candidates already, `filled` are the slices that the
    teacher fills, `off_label` the drafts that look like another label's; `lot` and `control_seed` are where the
    decision's and the controls' randomness begins. `judge_price` is that of the spec's own judge. A preview draws no
    slice to be held back."""

    tenant_id: UUID
    spec: Spec
    price: TeacherPrice
    heldout: frozenset[str]
    known_keys: Callable[[Collection[str]], set[str]]
    filled: Sequence[Slice]
    lot: str
    control_seed: int
    off_label: Collection[UUID] = ()
    is_held_back: bool = False
    judge_price: TeacherPrice | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """One way of offering drafts to the teacher, decided but not carried out. `drafts` are the ones that may be shown,
    or may compete; the decision's indices are into them."""

    strategy: Strategy
    drafts: tuple[StoredDraft, ...]
    decision: Decision | PoolDecision
    curves: Curves
    fresh_microusd: float
    gate_threshold: float | None = None

    @property
    def promise(self) -> float:
        """The best draft's expected acceptance in parts of the one at which this way pays."""
        places = [(draft.kinship, draft.distance) for draft in self.drafts]
        return max(predict_each(self.curves, places)) / max(self.decision.break_even, 1e-9)


def propose(
    context: PlanContext,
    slice_row: Slice,
    scope: Scope,
    near: Sequence[NearSource],
    exemplars: Sequence[str],
    *,
    n_open: int,
) -> Proposal | Arm:
    """Choose the first way, the strongest certificate before others, that is expected to pay for the `n_open`
    candidates that the repeats leave open; else one that is worth a probe; else the one that came nearest to paying,
    which shows nothing. Where there is none, or one is suspended, the arm says so. The spec's own judge that is
    suspended, or is shown to be none, leaves the question to the teacher."""
    spec = context.spec
    prompt = verification_context(spec, slice_row, exemplars)
    prompt = with_old_prompts(context.tenant_id, spec, prompt, [source.source_id for source in near])
    threshold = certified_threshold_of(context.tenant_id, spec, scope.id) if spec.draft_cache.gate else None
    exact = verifiers_of(spec, prompt.policy)
    rows = {
        strategy: calibration(context.tenant_id, scope.id, strategy)
        for strategy in [*(v.strategy for v in exact), *([Strategy.JUDGE] if can_judge(spec) else [])]
    }
    if threshold is not None:
        rows[Strategy.GATE] = calibration(context.tenant_id, scope.id, Strategy.GATE)
    if any(row.suspended_at is not None for row in rows.values()):
        return Arm.SUSPENDED
    standing = standing_of(context.tenant_id, spec, scope.id)
    if standing is not None and not standing.refusal and rows.pop(Strategy.JUDGE, None) is not None:
        rows[Strategy.DELEGATE] = standing.row
    proposals = _proposals(context, slice_row, prompt, near, rows, exact, threshold, n_open)
    paying = (each for arm in (Arm.OFFERED, Arm.PROBED) for each in proposals if each.decision.arm == arm)
    best = next(paying, None) or max(proposals, key=lambda each: each.promise, default=None)
    return Arm.NO_DRAFTS if best is None else replace(best, gate_threshold=threshold)


def _proposals(
    context: PlanContext,
    slice_row: Slice,
    prompt: VerificationContext,
    near: Sequence[NearSource],
    rows: Mapping[Strategy, Calibration],
    exact: Sequence[DraftVerifier],
    threshold: float | None,
    n_open: int,
) -> list[Proposal]:
    """Decide about each way that has drafts, the strongest certificate first."""
    fitting = _fitting(context, _offered_by(Strategy.JUDGE, near))
    proposals = []

    def by(verifier: DraftVerifier, drafts: Sequence[StoredDraft]) -> None:
        if drafts:
            row, rng = rows[verifier.strategy], random.Random(f"{context.lot}/{verifier.strategy}")
            fresh = fresh_cost(prompt, context.price, drafts=drafts, near=near)
            decision = decide_by(verifier, prompt, drafts, row, context.price, fresh=fresh, n_wanted=n_open, rng=rng)
            proposals.append(_proposal(verifier.strategy, drafts, decision, row, fresh))

    for verifier in exact:
        by(verifier, _offered_by(verifier.strategy, near)[:MAX_SHOWN])
    may_compete = [draft for draft in fitting if draft.draft_id not in context.off_label][: MOST_POOLED * n_open]
    judges = [strategy for strategy in CERTIFIES if strategy in rows]  # one at most
    for strategy in judges if may_compete else ():
        fresh = fresh_cost(prompt, context.price, drafts=may_compete, near=near)
        proposals.append(_propose_pool(context, slice_row, may_compete, strategy, rows[strategy], fresh, n_open=n_open))
    if threshold is not None:  # its quote needs no scores; those are worked out when it verifies
        by(GateVerifier(scores=lambda _: None, threshold=threshold), fitting[:MAX_SHOWN])
    return proposals


def _propose_pool(
    context: PlanContext,
    slice_row: Slice,
    drafts: Sequence[StoredDraft],
    strategy: Strategy,
    row: Calibration,
    fresh_microusd: float,
    *,
    n_open: int,
) -> Proposal:
    """Decide which drafts compete unverified for this slice's picks, where `strategy` says who is asked. Where rounds
    of labelling may buy any candidate, all that compete are asked about."""
    n_there = int(slice_row.n_candidates) - n_open
    is_delegate = strategy is Strategy.DELEGATE
    asked_of = judged_by(context.spec) if is_delegate else context.spec
    price = context.judge_price if is_delegate and context.judge_price is not None else context.price
    tokens = request_tokens(described_slices(asked_of, context.filled)).as_counted(
        [draft.text for draft in drafts], [draft.n_tokens for draft in drafts]
    )
    quote = quote_pool(
        tokens,
        [draft.n_tokens for draft in drafts],
        price,
        n_slices=max(1, len(context.filled)),
        acceptance=QUOTED_ACCEPTANCE,
    )
    k = int(slice_row.n_candidates) if buys_in_rounds(context.spec) else int(slice_row.k_requested)
    decision = decide_pool(
        curves_of(row),
        _offerables(drafts, quote, _source_order(drafts)),
        n_wanted=n_open,
        n_there=n_there,
        k=k,
        fresh_microusd=fresh_microusd,
        overhead_microusd=quote.overhead_microusd,
        ledger=ledger_of(row),
        rng=random.Random(f"{context.lot}/judge"),
    )
    return _proposal(strategy, drafts, decision, row, fresh_microusd)


def _proposal(
    strategy: Strategy,
    drafts: Sequence[StoredDraft],
    decision: Decision | PoolDecision,
    row: Calibration,
    fresh_microusd: float,
) -> Proposal:
    return Proposal(
        strategy=strategy,
        drafts=tuple(drafts),
        decision=decision,
        curves=curves_of(row),
        fresh_microusd=fresh_microusd,
    )


def verifiers_of(spec: Spec, policy: SamplingPolicy) -> tuple[DraftVerifier, ...]:
    """The verifications before anything is written that the spec's teacher can be asked for, the strongest certificate
    first."""
    caps = caps_of(spec.teacher)
    exact = LogprobVerifier(caps, rule=Rule.STORED)
    is_wanted = spec.draft_cache.verify in ("auto", "logprobs")
    return (exact,) if is_wanted and exact.capable(caps, policy) else ()


def can_judge(spec: Spec) -> bool:
    """Say whether the spec's teacher is asked for verdicts; a recording answers nothing that was not asked before."""
    return spec.draft_cache.verify in ("auto", "judge") and spec.teacher.provider != "replay"


def decide_by(
    verifier: DraftVerifier,
    context: VerificationContext,
    drafts: Sequence[StoredDraft],
    row: Calibration,
    price: TeacherPrice,
    *,
    fresh: float,
    n_wanted: int,
    rng: random.Random,
    probe: Sequence[StoredDraft] = (),
    counts: Mapping[UUID, SourceCount] = MappingProxyType({}),
) -> Decision:
    """Decide which of the drafts this verifier shows, where a candidate costs `fresh` micro-USD. `counts` says, by
    source, what became of the drafts of a `probe` that were shown just before."""
    quote = verifier.quote(context, drafts, price)
    order = _source_order((*probe, *drafts))
    return decide(
        curves_of(row),
        _offerables(drafts, quote, order),
        n_wanted=n_wanted,
        fresh_microusd=fresh,
        overhead_microusd=quote.overhead_microusd,
        ledger=ledger_of(row),
        rng=rng,
        seen={order[id]: count for id, count in counts.items()},
    )


def drafts_for_the_engine(near: Sequence[NearSource]) -> tuple[PlannedDraft, ...]:
    """The drafts that go along with the fresh requests: the engine verifies while it writes, and asks nothing more.
    There are no verdicts: which tokens it kept is in the engine's own metrics."""
    drafts = [draft for source in near for draft in source.drafts][:MAX_SHOWN]
    return tuple(PlannedDraft(draft_id=draft.draft_id, distance=draft.distance) for draft in drafts)


def _fitting(context: PlanContext, drafts: Sequence[StoredDraft]) -> tuple[StoredDraft, ...]:
    """The drafts that could become candidates: what fails a check, or is here already, is not asked about. Only for
    rules that need no sample of the teacher's distribution."""
    keys = {draft.draft_id: text_key(draft.text) for draft in drafts}
    known = context.known_keys(keys.values())
    fitting = []
    for draft in drafts:
        key = keys[draft.draft_id]
        if key in known or check_text(draft.text, context.heldout, key) or gate_reasons(context.spec, draft.text):
            continue
        known.add(key)
        fitting.append(draft)
    return tuple(fitting)


def _offered_by(strategy: Strategy, near: Sequence[NearSource]) -> tuple[StoredDraft, ...]:
    """The drafts that a strategy may show. An exact rule takes them as they were drawn, picked ones among them; a judge
    is shown what no selection kept."""
    drafts = [draft for source in near for draft in source.drafts]
    return tuple(draft for draft in drafts if strategy == Strategy.LOGPROBS or not draft.is_kept)


def _source_order(drafts: Sequence[StoredDraft]) -> dict[UUID, int]:
    """A number for each source, in the order they come."""
    return {id: at for at, id in enumerate(dict.fromkeys(draft.source_id for draft in drafts))}


def _offerables(drafts: Sequence[StoredDraft], quote: Quote, order: Mapping[UUID, int]) -> list[Offerable]:
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
            kinship=draft.kinship,
        )
        for i, draft in enumerate(drafts)
    ]
