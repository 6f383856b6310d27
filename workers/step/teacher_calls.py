"""Teacher calls in journaled batches: written down before they are made, paid for once, found again after a crash.

A batch is the set of calls in flight at the same time (at most `teacher.concurrency`). Three acts: a transaction that
reserves the money and writes `started` rows; the calls, in threads that touch no database; a transaction that stores
the answers together with whatever the step makes of them. A process that dies in the middle leaves `started` rows
under an old fence: those are booked to waste and made again, so a crash repeats at most one batch and the customer
never pays for it.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeVar
from uuid import UUID

from django.db import Error as DatabaseError
from django.db.models import QuerySet
from django.utils import timezone

from backend.compiles import leases
from backend.compiles.booking import Fenced
from backend.compiles.models import Compile, TeacherBatch, TeacherCall
from backend.compiles.states import ANSWERED_STATES, CALL_MOVES, CallState, states_before
from backend.domain.canonical import sha256_of
from backend.domain.dialects.tools import most_tool_tokens
from backend.domain.drafts.vocabulary import Cost
from backend.domain.lifecycle import StepName
from backend.domain.money.pricing import TeacherPrice
from backend.usage.ledger import Fact
from backend.usage.models import Billing
from workers.step.durable import CompileRun, is_away, patiently
from workers.step.spending import capture, pays_call_itself, reserve
from workers.teachers.protocol import (
    Completion,
    CompletionRequest,
    ScoreRequest,
    Teacher,
    TeacherCanceled,
    TeacherFailed,
    Usage,
)
from workers.teachers.verifiers.protocol import TeacherRequest

Request = TypeVar("Request", bound=CompletionRequest | ScoreRequest)

DEADLINE_S = 120.0
SLOW_TOKENS_PER_S = 20.0  # a long answer gets the time that this takes; room for thoughts is time besides
MAX_SKU_MODEL = 170  # an sku has room for 200 characters
AS_RESERVED = "as reserved"  # instead of a price book's version: the amount was set aside before the call


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCall:
    """`key` names the call within the compile: the same key is the same call, whoever makes it. `deadline_s` is the
    least time for an answer, thoughts apart."""

    key: str
    request: TeacherRequest
    deadline_s: float = DEADLINE_S

    @property
    def patience_s(self) -> float:
        """The time for all attempts of the call together."""
        if isinstance(self.request, ScoreRequest):
            return self.deadline_s
        for_answer_s, for_thoughts_s = (
            n / SLOW_TOKENS_PER_S for n in (self.request.max_tokens, self.request.thought_tokens)
        )
        return max(self.deadline_s, for_answer_s) + for_thoughts_s


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeCall:
    key: str
    call_id: UUID
    choices: list[dict[str, Any]]
    cost_microusd: int
    cost: Cost = field(default_factory=Cost)
    revision: str = ""
    latency_ms: int = 0


Save = Callable[[Compile, list[MadeCall]], None]


def call_batch(
    run: CompileRun, step: StepName, teacher: Teacher, price: TeacherPrice, plans: Sequence[PlannedCall], save: Save
) -> None:
    """Make the calls that are not journaled yet and hand all answers to `save` in the transaction that journals the
    last of them.

    `save` runs once for a batch, however often the batch is asked for. Raises TeacherFailed when a call failed (what
    the others answered is kept and paid once); PaymentRequired before any call when the budget is too small.
    """
    made, are_applied = _find_journaled(run, plans)
    if are_applied:
        return
    plans = [replace(plan, request=with_thoughts(teacher, plan.request)) for plan in plans]
    todo = [plan for plan in plans if plan.key not in made]
    rows = open_calls(run, step, teacher.identity.model, price, todo) if todo else {}
    outcomes = _make(run, teacher, todo)
    keys = [plan.key for plan in plans]
    try:
        failure = _close(run, step, price, rows, outcomes, made, keys, save)
    except DatabaseError as error:
        if is_away(error):  # what is paid for is not lost with a connection: the next try finds it in the journal
            patiently(lambda: _keep(run, step, price, rows, outcomes), stop=run.stop)
        raise
    run.stop.check()
    if failure is not None:
        raise failure


def ask_batch(
    run: CompileRun, step: StepName, teacher: Teacher, price: TeacherPrice, plans: Sequence[PlannedCall]
) -> list[MadeCall]:
    """The answers of these calls, made now or found in the journal; nothing else is saved with them. Raises as
    `call_batch`."""
    call_batch(run, step, teacher, price, plans, lambda *_: None)
    made, _ = _find_journaled(run, plans)
    return [made[plan.key] for plan in plans]


def with_thoughts(teacher: Teacher, request: Request) -> Request:
    """The request with the room that its teacher needs for thoughts, which it may have shown only when it was asked."""
    return with_room(request, teacher.thought_tokens)


def with_room(request: Request, thought_tokens: int) -> Request:
    """The request with this room for thoughts at least."""
    if isinstance(request, ScoreRequest) or request.thought_tokens >= thought_tokens:
        return request
    return replace(request, thought_tokens=thought_tokens)


def worst_cost(price: TeacherPrice, request: TeacherRequest) -> int:
    """The most a call can be billed, micro-USD: every byte of the prompt a token, every choice as long as allowed. A
    text that is scored is part of the prompt, and some servers generate one token after it."""
    n_bytes = sum(len(message.content.encode()) + 16 for message in request.messages)
    if isinstance(request, ScoreRequest):
        return price.most_microusd(input_tokens=n_bytes + len(request.text.encode()), output_tokens=1)
    n_bytes += len(request.prefix.encode()) + (most_tool_tokens(request.answer_schema) if request.as_tool else 0)
    return price.most_microusd(input_tokens=n_bytes, output_tokens=request.most_output_tokens)


def find_answered(run: CompileRun, keys: Sequence[str]) -> set[str]:
    """Find those of the calls that are answered and paid."""
    with run.transaction():
        rows = TeacherCall.objects.filter(tenant_id=run.tenant_id, compile_id=run.compile_id, state__in=ANSWERED_STATES)
        return set(rows.filter(key__in=list(keys)).values_list("key", flat=True))


def _find_journaled(run: CompileRun, plans: Sequence[PlannedCall]) -> tuple[dict[str, MadeCall], bool]:
    with run.transaction():
        rows = TeacherCall.objects.filter(
            tenant_id=run.tenant_id,
            compile_id=run.compile_id,
            state__in=ANSWERED_STATES,
            key__in=[p.key for p in plans],
        )
        made = {row.key: _as_made(row) for row in rows}
        return made, len(made) == len(plans) and all(r.state == CallState.APPLIED for r in rows)


def _as_made(row: TeacherCall) -> MadeCall:
    cost = Cost(
        input_tokens=row.input_tokens,
        cached_tokens=row.cached_tokens,
        output_tokens=row.output_tokens,
        n_requests=1,
        amount_microusd=row.cost_microusd,
        price_version=row.price_version,
    )
    return MadeCall(
        key=row.key,
        call_id=row.id,
        choices=row.choices,
        cost_microusd=row.cost_microusd,
        cost=cost,
        revision=row.revision,
        latency_ms=row.latency_ms,
    )


def answer_ahead(
    run: CompileRun, step: StepName, teacher: Teacher, price: TeacherPrice, plans: Sequence[PlannedCall]
) -> None:
    """Make the calls that are not journaled yet and journal their answers, for the step to find: nothing is saved with
    them. Raises as `call_batch`."""
    made, _ = _find_journaled(run, plans)
    todo = [replace(plan, request=with_thoughts(teacher, plan.request)) for plan in plans if plan.key not in made]
    rows = open_calls(run, step, teacher.identity.model, price, todo)
    outcomes = _make(run, teacher, todo)
    with run.transaction() as fenced:
        failure = journal(run, fenced, step, price, rows, outcomes)
    run.stop.check()
    if failure is not None:
        raise failure


def open_calls(
    run: CompileRun,
    step: StepName,
    model: str,
    price: TeacherPrice,
    plans: Sequence[PlannedCall],
    *,
    batch: TeacherBatch | None = None,
) -> dict[str, TeacherCall]:
    """Reserve the money of these calls and write them down, as in flight or as part of a batch, which is saved with
    them. Raises PaymentRequired."""
    with run.transaction() as fenced:
        if batch is not None:
            batch.save(force_insert=True)
        older = TeacherCall.objects.filter(
            tenant_id=run.tenant_id, compile_id=run.compile_id, key__in=[p.key for p in plans]
        )
        attempts: dict[str, int] = {}
        for row in older:
            attempts[row.key] = max(attempts.get(row.key, 0), row.attempt)
            if row.state == CallState.STARTED:
                write_off(fenced, row, is_own_key=pays_call_itself(run.spec, row.key))
        reserve(fenced.compile, sum(worst_cost(price, plan.request) for plan in plans))
        rows = [
            TeacherCall(
                tenant_id=run.tenant_id,
                compile_id=run.compile_id,
                step=step,
                key=plan.key,
                attempt=attempts.get(plan.key, 0) + 1,
                fence=run.lease.fence,
                model=model,
                state=CallState.STARTED if batch is None else CallState.SUBMITTED,
                batch_id=None if batch is None else batch.id,
                request_sha256=request_sha256(plan.request),
                n=1 if isinstance(plan.request, ScoreRequest) else plan.request.n,
                reserved_microusd=worst_cost(price, plan.request),
                price_version=price.version,
            )
            for plan in plans
        ]
        TeacherCall.objects.bulk_create(rows)
    return {row.key: row for row in rows}


def write_off(fenced: Fenced, row: TeacherCall, *, is_own_key: bool) -> None:
    """A call that died with its process: its reservation is given back, its likely cost is ours, or, with a key of the
    customer's own, its provider's to bill."""
    fact = Fact(
        sku=_sku(row, "lost_call"),
        quantity=1,
        unit="call",
        amount_microusd=0 if is_own_key else row.reserved_microusd,
        provider_microusd=row.reserved_microusd if is_own_key else 0,
        price_version=AS_RESERVED,
        source_key=f"call:{row.id}:lost",
        billing=Billing.WASTE,
        is_estimated=True,
    )
    # the end of a compile gave all its reservations back; a resumed one finds the call and no reservation
    returned_microusd = min(row.reserved_microusd, fenced.compile.reserved_microusd)
    capture(fenced, StepName(row.step), [fact], reserved_microusd=returned_microusd)
    lost = TeacherCall.objects.filter(tenant_id=row.tenant_id, id=row.id)
    _move(lost, CallState.WASTED, ended_at=timezone.now())


def _move(calls: QuerySet[TeacherCall], to: CallState, **changes: Any) -> None:
    """Move those of these calls that the table lets move; the others are there already."""
    calls.filter(state__in=states_before(CALL_MOVES, to)).update(state=to, **changes)


def _make(
    run: CompileRun, teacher: Teacher, plans: Sequence[PlannedCall]
) -> dict[str, Completion | TeacherFailed | TeacherCanceled]:
    def one(plan: PlannedCall) -> Completion | TeacherFailed | TeacherCanceled:
        try:
            if isinstance(plan.request, ScoreRequest):
                return teacher.score(plan.request, deadline_s=plan.patience_s, cancelled=run.stop.is_set)
            return teacher.complete(plan.request, deadline_s=plan.patience_s, cancelled=run.stop.is_set)
        except (TeacherFailed, TeacherCanceled) as error:
            return error

    if not plans:
        return {}
    with ThreadPoolExecutor(max_workers=len(plans)) as pool:
        return dict(zip((plan.key for plan in plans), pool.map(one, plans), strict=True))


def _close(
    run: CompileRun,
    step: StepName,
    price: TeacherPrice,
    rows: dict[str, TeacherCall],
    outcomes: dict[str, Completion | TeacherFailed | TeacherCanceled],
    made: dict[str, MadeCall],
    order: Sequence[str],
    save: Save,
) -> TeacherFailed | None:
    with run.transaction() as fenced:
        failure = journal(run, fenced, step, price, rows, outcomes)
        made |= {key: _as_made(rows[key]) for key, outcome in outcomes.items() if isinstance(outcome, Completion)}
        if all(key in made for key in order):
            save(fenced.compile, [made[key] for key in order])
            ids = [call.call_id for call in made.values()]
            _move(TeacherCall.objects.filter(tenant_id=run.tenant_id, id__in=ids), CallState.APPLIED)
            leases.note_progress(run.lease)
    return failure


def _keep(
    run: CompileRun,
    step: StepName,
    price: TeacherPrice,
    rows: dict[str, TeacherCall],
    outcomes: dict[str, Completion | TeacherFailed | TeacherCanceled],
) -> None:
    """Journal what was answered and nothing else, after a transaction that broke off: whether it was committed all the
    same, the rows say. `save` is not called again, since what it changed in memory is not taken back."""
    with run.transaction() as fenced:
        ids = [row.id for row in rows.values()]
        started = TeacherCall.objects.filter(tenant_id=run.tenant_id, id__in=ids, state=CallState.STARTED)
        open_keys = set(started.values_list("key", flat=True))
        for key in open_keys:
            rows[key].state = CallState.STARTED  # as the table has it: the move in memory came to nothing
        left = {key: outcome for key, outcome in outcomes.items() if key in open_keys}
        journal(run, fenced, step, price, rows, left)


def journal(
    run: CompileRun,
    fenced: Fenced,
    step: StepName,
    price: TeacherPrice,
    rows: dict[str, TeacherCall],
    outcomes: dict[str, Completion | TeacherFailed | TeacherCanceled],
) -> TeacherFailed | None:
    """Write down and pay what came of the calls, inside a transaction; the first of them that failed."""
    failure: TeacherFailed | None = None
    for key, outcome in outcomes.items():
        row = rows[key]
        row.ended_at = timezone.now()
        facts = _facts(row, price, outcome, is_own_key=pays_call_itself(run.spec, row.key))
        # the end of a compile gave all its reservations back, and the budget that it has now may carry less
        returned_microusd = min(row.reserved_microusd, fenced.compile.reserved_microusd)
        capture(fenced, step, facts, reserved_microusd=returned_microusd)
        if isinstance(outcome, Completion):
            row.move(CallState.SUCCEEDED)
            row.choices = [asdict(choice) for choice in outcome.choices]
            row.provider_request_id = (outcome.provider_request_id or "")[:200]
            row.latency_ms = outcome.latency_ms
            row.revision = outcome.revision[:200]
        elif isinstance(outcome, TeacherCanceled):
            row.move(CallState.CANCELED)
            row.error_code = "canceled"
        else:
            row.move(CallState.FAILED)
            row.error_code = outcome.code
            failure = failure or outcome
        row.save()
    return failure


def _facts(
    row: TeacherCall,
    price: TeacherPrice,
    outcome: Completion | TeacherFailed | TeacherCanceled,
    *,
    is_own_key: bool,
) -> list[Fact]:
    """The cost of a call as facts: an answer is the customer's, what tries without one may have cost is ours. With the
    customer's own key all of it is the provider's to bill."""

    def book(usage: Usage, billing: Billing) -> list[Fact]:
        facts = _book(row, price, usage, billing)
        if not is_own_key:
            return facts
        return [replace(fact, amount_microusd=0, provider_microusd=fact.amount_microusd) for fact in facts]

    if not isinstance(outcome, Completion):
        return [] if outcome.usage is None else book(outcome.usage, Billing.WASTE)
    row.input_tokens, row.output_tokens = outcome.usage.input_tokens, outcome.usage.output_tokens
    row.cached_tokens = outcome.usage.cached_tokens
    row.thought_tokens = outcome.usage.thought_tokens
    row.usage_flags = [name for name in ("estimated", "disputed") if getattr(outcome.usage, name)]
    facts = book(outcome.usage, Billing.CHARGE)
    row.cost_microusd = sum(fact.amount_microusd + fact.provider_microusd for fact in facts)
    is_retried = outcome.wasted.input_tokens + outcome.wasted.output_tokens > 0
    return facts + (book(outcome.wasted, Billing.WASTE) if is_retried else [])


def _book(row: TeacherCall, price: TeacherPrice, usage: Usage, billing: Billing) -> list[Fact]:
    """Tokens as facts, input and output, cached and written input apart where there was some; together never more
    than was reserved for the call."""
    parts = price.parts(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cached_tokens=usage.cached_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        most_microusd=row.reserved_microusd,
    )
    return [
        Fact(
            sku=_sku(row, f"{part.kind}_token"),
            quantity=part.quantity,
            unit="token",
            amount_microusd=part.amount_microusd,
            price_version=price.version,
            source_key=f"call:{row.id}:{billing}:{part.kind}_token",
            billing=billing,
            is_estimated=usage.estimated or usage.disputed,
        )
        for part in parts
    ]


def _sku(row: TeacherCall, name: str) -> str:
    return f"teacher.{row.model[:MAX_SKU_MODEL]}.{name}"


def request_sha256(request: TeacherRequest) -> str:
    """The digest of what a request asks: no float is in it, nor what a vendor does not hear."""
    value = asdict(request)
    for name in ("n_before", "labels"):
        value.pop(name, None)
    return sha256_of({name: repr(item) if isinstance(item, float) else item for name, item in value.items()})
