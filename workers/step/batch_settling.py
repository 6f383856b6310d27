"""The end of a teacher batch: its answers become the journal's, each paid once at the batch's price, and what it left
unanswered is free to be asked again.

A process may die at any point of this: lines whose calls are journaled already count for nothing the second time, so
that the files are simply read again.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice

from django.db import transaction
from django.utils import timezone

from backend.blobs import get_blob, sweep_blob
from backend.compiles.booking import Fenced
from backend.compiles.endpoint_lessons import MAX_LESSONS
from backend.compiles.events import touch
from backend.compiles.models import TeacherBatch, TeacherCall
from backend.compiles.states import BatchState, CallState
from backend.domain.dialects.dialect import ONE_REQUEST, Lesson, lessons_from_json
from backend.domain.lifecycle import StepName
from workers.step.batch_planning import TOO_MANY_TOKENS, most_answer_bytes, name_of
from workers.step.durable import CompileRun
from workers.step.teacher_calls import journal
from workers.teachers.openai_compatible.answers import no_answer
from workers.teachers.openai_compatible.batch_endpoint import BatchEndpoint, BatchJob
from workers.teachers.openai_compatible.batch_lines import (
    BatchLine,
    BatchRequest,
    answer_of,
    completion_of,
    filter_failure,
    is_filtered,
    lesson_of,
    read_lines,
)
from workers.teachers.openai_compatible.teacher import MOST_REFUSED
from workers.teachers.protocol import Completion, TeacherCanceled, TeacherFailed

AT_ONCE = 200  # lines that one transaction journals
Outcome = Completion | TeacherFailed | TeacherCanceled
# why a vendor refuses a batch as a whole, where the customer can mend it
_REFUSALS = {
    "model_not_found": 'its batch endpoint does not take this model; take another one, or teacher.mode "live"',
    "model_not_supported": 'its batch endpoint does not take this model; take another one, or teacher.mode "live"',
    "billing_hard_limit_reached": "the account has no credit left",
    "insufficient_quota": "the account has no credit left",
}


def journal_job(run: CompileRun, endpoint: BatchEndpoint, batch: TeacherBatch, job: BatchJob) -> TeacherFailed | None:
    """Journal what an ended job answered and end its batch; the failure that ends the compile, where a line or the job
    has one. Raises TeacherFailed where the files cannot be had."""
    if job.status == "failed" and not (job.output_file or job.error_file):
        reason = job.reasons[0] if job.reasons else "failed"
        release(run, batch, reason=reason, was_run=False)
        return None if reason == TOO_MANY_TOKENS else _refusal(batch, reason)
    sent = requests_of(run, batch)
    reading = _Reading(run=run, endpoint=endpoint, batch=batch, sent=sent)
    lines = read_lines(_rows(endpoint, job, sent))
    while part := tuple(islice(lines, AT_ONCE)):
        reading.take(part)
    reading.end()
    batch.lessons = [lesson.to_json() for lesson in reading.lessons]
    release(run, batch, was_run=True)
    return reading.failure


def _refusal(batch: TeacherBatch, reason: str) -> TeacherFailed:
    why = _REFUSALS.get(reason, 'it refuses a file of requests as a whole; try teacher.mode "live"')
    return TeacherFailed(f"The teacher {batch.model} refused a batch: {why}.", code="teacher_rejected")


def requests_of(run: CompileRun, batch: TeacherBatch) -> dict[str, BatchRequest]:
    """The requests of a batch by name, as they were written down."""
    rows = get_blob(run.tenant_id, batch.file_sha256).splitlines()
    return {request.name: request for request in map(BatchRequest.from_json, rows)}


def _rows(endpoint: BatchEndpoint, job: BatchJob, sent: Mapping[str, BatchRequest]) -> Iterator[bytes]:
    """The lines of both files; answers first, where a hostile endpoint gives one request both."""
    cap = 4 * sum(most_answer_bytes(request) for request in sent.values())
    for file in (job.output_file, job.error_file):
        if file:
            yield from endpoint.rows(file, cap=cap)


@dataclass(slots=True, kw_only=True)
class _Reading:
    run: CompileRun
    endpoint: BatchEndpoint
    batch: TeacherBatch
    sent: Mapping[str, BatchRequest]
    failure: TeacherFailed | None = None
    _answered: set[str] = field(default_factory=set)
    _filtered: dict[str, BatchLine] = field(default_factory=dict)
    _made_by: tuple[Lesson, ...] = field(init=False)
    _refused_before: frozenset[str] = field(init=False)
    _learnt: tuple[Lesson, ...] = ()

    def __post_init__(self) -> None:
        known = self.batch.lessons  # None in a row of an older release
        self._made_by = self.endpoint.teacher.lessons if known is None else lessons_from_json(known)
        self._refused_before = _refused_before(self.run, self.batch)

    @property
    def lessons(self) -> tuple[Lesson, ...]:
        """The lessons by which the requests were made, and those of their refusals."""
        return (*self._made_by, *self._learnt)

    def take(self, lines: tuple[BatchLine, ...]) -> None:
        """Journal some lines; those that a filter refused are put aside until all are known."""
        self._journal({line.name: outcome for line in lines if (outcome := self._outcome(line)) is not None})

    def end(self) -> None:
        """Drop the guesses, which answered lines refute: the refused ones are sent again as they are. Journal the lines
        that a filter refused. Each is one text of many, and has an empty answer; in a row of more than MOST_REFUSED, in
        the order in which they were sent, the further ones fail, as live calls do."""
        if self._answered:
            self._learnt = tuple(lesson for lesson in self._learnt if not lesson.is_guess)
        outcomes: dict[str, Outcome] = {}
        n_in_a_row = 0
        for name, sent in self.sent.items():
            if name in self._answered:
                n_in_a_row = 0
            line = self._filtered.get(name)
            if line is None:
                continue
            n_in_a_row += 1
            if n_in_a_row <= MOST_REFUSED:
                outcomes[name] = completion_of(no_answer(sent.request), line)
            else:
                outcomes[name] = self._fail(filter_failure(line, self.batch.model))
        names = iter(outcomes)
        while part := tuple(islice(names, AT_ONCE)):
            self._journal({name: outcomes[name] for name in part})

    def _fail(self, failed: TeacherFailed) -> TeacherFailed:
        self.failure = self.failure or failed
        return failed

    def _journal(self, outcomes: Mapping[str, Outcome]) -> None:
        """Journal and pay lines in one transaction. Lines that are no call's, or of a call that is journaled, are
        left."""
        price = self.run.prices.batch_of(self.batch.model)
        with self.run.transaction() as fenced:
            calls = TeacherCall.objects.select_for_update().filter(
                tenant_id=self.run.tenant_id, batch_id=self.batch.id, state=CallState.SUBMITTED
            )
            rows = {name: call for call in calls if (name := name_of(call.key)) in outcomes}
            known = {name: outcome for name, outcome in outcomes.items() if name in rows}
            journal(self.run, fenced, StepName(self.batch.step), price, rows, known)
            self.batch.n_answered += sum(isinstance(outcome, Completion) for outcome in known.values())
            self.batch.save(update_fields=["n_answered"])

    def _outcome(self, line: BatchLine) -> Outcome | None:
        sent, teacher = self.sent.get(line.name), self.endpoint.teacher
        if sent is None:
            return None
        answer = answer_of(line, sent)
        if answer is None:
            return None
        if is_filtered(line):
            self._filtered[line.name] = replace(line, body=b"")
            return None
        if isinstance(answer, TeacherFailed):
            return self._refusal(line, sent, answer)
        self._answered.add(line.name)
        self._confirm(sent)
        try:
            teacher.check_thoughts(answer, sent.request)
        except TeacherFailed as thought:
            return thought
        return completion_of(answer, line)

    def _refusal(self, line: BatchLine, sent: BatchRequest, failed: TeacherFailed) -> TeacherFailed:
        """A refusal about an option is a lesson, by which the call is made again, on trial. It is read by what the body
        was made by: lines that were refused alike teach the same, and not the next step each."""
        teacher = self.endpoint.teacher
        lesson = lesson_of(line, sent, teacher.dialect_for(sent.request, self._made_by), self._made_by)
        if lesson is not None and lesson.scope != ONE_REQUEST and len(self._learnt) < MAX_LESSONS:
            self._learnt = tuple(dict.fromkeys((*self._learnt, lesson)))
        is_changed = teacher.body_of(sent.request, (*teacher.lessons, *self.lessons)) != sent.body
        if not (failed.retryable or lesson is not None or is_changed):
            self._fail(failed)
        return failed

    def _confirm(self, sent: BatchRequest) -> None:
        """Learn the lessons on trial by which an answered request was made: without one of them its body would be
        another. As with live calls a request that was refused before is what shows it: others might have been answered
        with the option too. Of several guesses it shows the last one alone."""
        if sent.name not in self._refused_before:
            return
        teacher = self.endpoint.teacher
        on_trial = [lesson for lesson in self._made_by if lesson not in teacher.lessons]
        if not on_trial or teacher.body_of(sent.request, self._made_by) != sent.body:
            return
        for lesson in on_trial:
            if lesson.is_guess and lesson != on_trial[-1]:
                continue
            others = [other for other in self._made_by if other != lesson]
            if teacher.body_of(sent.request, others) != sent.body:
                teacher.learn([lesson])


def _refused_before(run: CompileRun, batch: TeacherBatch) -> frozenset[str]:
    """The names of the calls that the compile's other batches had, and that were refused there."""
    calls = TeacherCall.objects.filter(tenant_id=run.tenant_id, compile_id=run.compile_id, batch_id__isnull=False)
    with run.transaction():
        refused = calls.filter(state=CallState.FAILED, error_code="teacher_rejected").exclude(batch_id=batch.id)
        return frozenset(map(name_of, refused.values_list("key", flat=True)))


def release(run: CompileRun, batch: TeacherBatch, *, was_run: bool, reason: str = "") -> None:
    """End a batch: calls that it did not answer cost nothing and may be made again."""
    with run.transaction() as fenced:
        _release_calls(fenced, batch, was_run=was_run)
        batch.move(BatchState.ENDED)
        batch.reason, batch.ended_at = reason, timezone.now()
        batch.save(update_fields=["state", "reason", "ended_at", "lessons"])
        same = TeacherBatch.objects.filter(tenant_id=run.tenant_id, file_sha256=batch.file_sha256)
        if not same.exclude(state=BatchState.ENDED).exists():
            transaction.on_commit(lambda: sweep_blob(run.tenant_id, batch.file_sha256), robust=True)


def _release_calls(fenced: Fenced, batch: TeacherBatch, *, was_run: bool) -> None:
    calls = TeacherCall.objects.filter(tenant_id=batch.tenant_id, batch_id=batch.id, state=CallState.SUBMITTED)
    reserved = sum(calls.values_list("reserved_microusd", flat=True))
    compile = fenced.compile
    touch(compile, reserved_microusd=compile.reserved_microusd - min(reserved, compile.reserved_microusd))
    # a call whose batch was never run is in none: it is no reason to make it live
    calls.update(state=CallState.CANCELED, batch_id=batch.id if was_run else None, ended_at=timezone.now())
