"""The calls of a step that go into a teacher batch, and the batches that are made of them.

A step in batch mode asks here before each of its calls. What the journal has not is put aside, with all else that the
step would ask now, and is sent in as few batches as can be; the step comes back when they are answered, and finds the
answers in the journal, as after a crash. Some calls are made live: the first of a step, so that an endpoint's refusals
and thoughts are known before thousands of calls are written; and those that batches left unanswered, when they are few
or were in two of them.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from backend.blobs import put_blob
from backend.compiles.endpoint_lessons import MAX_LESSONS, lessons_of_batches
from backend.compiles.models import TeacherBatch, TeacherCall
from backend.compiles.states import ANSWERED_STATES, CallState
from backend.domain.canonical import sha256_hex
from backend.domain.dialects.batches import OUR_MOST_BYTES, BatchTerms
from backend.domain.dialects.dialect import Lesson
from backend.domain.lifecycle import StepName
from backend.domain.money.pricing import TeacherPrice
from workers.step.durable import CompileRun
from workers.step.spending import left_of
from workers.step.teacher_calls import PlannedCall, answer_ahead, find_answered, open_calls, with_thoughts, worst_cost
from workers.step.teacher_session import TeacherSession
from workers.teachers.openai_compatible.batch_endpoint import BatchEndpoint
from workers.teachers.openai_compatible.batch_lines import BatchRequest
from workers.teachers.protocol import CompletionRequest, TeacherFailed

FEW = 20  # calls of a slice, or labels, that are sooner made live than sent again
MAX_BATCHES = 2  # that may leave a call unanswered before it is made live
TOO_MANY_TOKENS = "token_limit_exceeded"  # more than the vendor lets this account have waiting
BYTES_A_TOKEN, BYTES_A_LINE = 8, 4_000  # of an answer
# with log-probs each token has a row: its text, its bytes as numbers, and the same of each alternative
BYTES_A_ROW, BYTES_AN_ALTERNATIVE = 160, 110


@dataclass(slots=True, kw_only=True)
class StepBatches:
    """The calls of one step that wait to be sent, by model (None: the spec's first)."""

    run: CompileRun
    step: StepName
    _waiting: dict[str, list[PlannedCall]] = field(default_factory=dict)
    _live: set[str] = field(default_factory=set)
    n_sent: int = 0

    @property
    def is_on(self) -> bool:
        return self.run.spec.teacher.mode == "batch"

    def defers(
        self, session: TeacherSession, plans: Sequence[PlannedCall], all_plans: Callable[[], Sequence[PlannedCall]]
    ) -> bool:
        """Say whether the step has to come back for the answers to `plans`; then all that it would ask now is put
        aside. Raises TeacherFailed where the step's first call, which is live, fails."""
        if not self.is_on:
            return False
        answered = find_answered(self.run, [plan.key for plan in plans])
        if all(plan.key in answered | self._live for plan in plans):
            return False
        self._try_first(session, plans[0])
        wanted = list(all_plans())
        answered = find_answered(self.run, [plan.key for plan in wanted])
        to_send = self._but_live([plan for plan in wanted if plan.key not in answered])
        if to_send:
            self._waiting.setdefault(session.teacher.identity.model, []).extend(to_send)
        return bool(to_send)

    def _try_first(self, session: TeacherSession, plan: PlannedCall) -> None:
        calls = TeacherCall.objects.filter(tenant_id=self.run.tenant_id, compile_id=self.run.compile_id, step=self.step)
        with self.run.transaction():
            is_known = calls.filter(model=session.teacher.identity.model, state__in=ANSWERED_STATES).exists()
        if not is_known:
            answer_ahead(self.run, self.step, session.teacher, session.price, [plan])

    def _but_live(self, plans: Sequence[PlannedCall]) -> list[PlannedCall]:
        """The calls without those that are to be made live, which are noted, with a warning."""
        with self.run.transaction():
            rows = TeacherCall.objects.filter(
                tenant_id=self.run.tenant_id, compile_id=self.run.compile_id, batch_id__isnull=False
            )
            left = rows.filter(key__in=[plan.key for plan in plans], state__in=(CallState.CANCELED, CallState.FAILED))
            n_batches = Counter(left.values_list("key", flat=True))
        again = [plan.key for plan in plans if n_batches[plan.key]]
        live = {key for key in again if n_batches[key] >= MAX_BATCHES}
        if len(again) == len(plans) <= FEW:
            live = set(again)
        if live - self._live:
            self._live |= live
            message = f"{len(live)} calls that a batch left unanswered are made live, at the live price."
            with self.run.transaction():
                self.run.warn("batch_unfinished", message, step=self.step.value)
        return [plan for plan in plans if plan.key not in live]

    def send(self, sessions: Callable[[str], TeacherSession]) -> None:
        """Write down all that was put aside as batches, as far as the budget can carry them; what is left is put aside
        again when these are answered. Raises PaymentRequired where the budget carries none."""
        for model, plans in self._waiting.items():
            session = sessions(model)
            endpoint, price = session.batches(self.run), self.run.prices.batch_of(model)
            most = _most_requests(self.run, endpoint.terms)
            lessons = _lessons_for(self.run, endpoint)
            left = [(plan, _request_of(endpoint, plan, lessons)) for plan in plans]
            while left and (not self.n_sent or self._has_money(price, left[0][0])):
                chunk = list(_chunk(self.run, left, price, endpoint.terms, most)) or left[:1]
                self._write(model, price, chunk, lessons)
                left = left[len(chunk) :]
                if most < endpoint.terms.most_requests:
                    break  # the vendor lets only so much wait

    def _has_money(self, price: TeacherPrice, plan: PlannedCall) -> bool:
        return worst_cost(price, plan.request) <= _money_left(self.run)

    def _write(
        self,
        model: str,
        price: TeacherPrice,
        chunk: Sequence[tuple[PlannedCall, BatchRequest]],
        lessons: Sequence[Lesson],
    ) -> None:
        batch = TeacherBatch(
            tenant_id=self.run.tenant_id,
            compile_id=self.run.compile_id,
            step=self.step,
            model=model,
            file_sha256=put_blob(self.run.tenant_id, b"".join(request.to_json() for _, request in chunk)),
            n_requests=len(chunk),
            lessons=[lesson.to_json() for lesson in lessons],
        )
        plans = [PlannedCall(key=plan.key, request=request.request) for plan, request in chunk]
        open_calls(self.run, self.step, model, price, plans, batch=batch)
        self.n_sent += 1


def name_of(key: str) -> str:
    """The name of a call in its batch: its key may hold more characters than a vendor takes."""
    return sha256_hex(key.encode())[:40]


def _lessons_for(run: CompileRun, endpoint: BatchEndpoint) -> tuple[Lesson, ...]:
    """The lessons by which the next batch is made: the team's, and those that are on trial, of the compile's batches
    before it. An answer to it makes these the team's."""
    known = endpoint.teacher.lessons
    with run.transaction():
        of_batches = lessons_of_batches(run.tenant_id, run.compile_id, endpoint.teacher.identity.model)
    return (*known, *[lesson for lesson in of_batches if lesson not in known][:MAX_LESSONS])


def _request_of(endpoint: BatchEndpoint, plan: PlannedCall, lessons: Sequence[Lesson]) -> BatchRequest:
    if not isinstance(plan.request, CompletionRequest):
        raise TypeError("a score is no part of a batch")
    request = with_thoughts(endpoint.teacher, plan.request)
    return BatchRequest(name=name_of(plan.key), request=request, body=endpoint.teacher.body_of(request, lessons))


def _most_requests(run: CompileRun, terms: BatchTerms) -> int:
    """The most calls that a batch may hold: half as many as one that was more than the vendor lets wait. Raises
    TeacherFailed when that is next to none."""
    with run.transaction():
        rows = TeacherBatch.objects.filter(tenant_id=run.tenant_id, compile_id=run.compile_id)
        last = rows.order_by("-created_at").first()
    if last is None or last.reason != TOO_MANY_TOKENS:
        return terms.most_requests
    if last.n_requests <= FEW:
        raise TeacherFailed(
            f"The teacher {last.model} lets no more tokens of this account wait in batches. Resume the compile when "
            'other batches have ended, or compile with teacher.mode "live".',
            code="teacher_rejected",
        )
    return int(last.n_requests // 2)


def _chunk(
    run: CompileRun,
    requests: Sequence[tuple[PlannedCall, BatchRequest]],
    price: TeacherPrice,
    terms: BatchTerms,
    most: int,
) -> Iterator[tuple[PlannedCall, BatchRequest]]:
    """The first of the requests, as many as one batch may hold and the budget can pay at their worst."""
    money, room, answers = _money_left(run), terms.most_bytes, 4 * OUR_MOST_BYTES
    for plan, request in requests[:most]:
        money -= worst_cost(price, request.request)
        room -= len(request.line(terms.url))
        answers -= most_answer_bytes(request)
        if min(money, room, answers) < 0:
            return
        yield plan, request


def most_answer_bytes(sent: BatchRequest) -> int:
    """Return what the answer to a request is expected to take at most, in an output file."""
    a_token = BYTES_A_TOKEN
    if sent.body.get("logprobs"):
        a_token = BYTES_A_ROW + BYTES_AN_ALTERNATIVE * int(sent.body.get("top_logprobs", 0))
    return BYTES_A_LINE + a_token * sent.request.most_output_tokens


def _money_left(run: CompileRun) -> int:
    with run.transaction() as fenced:
        return left_of(fenced.compile)
