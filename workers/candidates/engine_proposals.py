"""Drafts as proposals: they go along with the requests for fresh candidates, and the engine that serves the teacher
verifies them while it writes. Nothing is asked besides, and the answer is the teacher's own whatever was proposed. What
came of them is in the engine's own counters alone (`engine_counts`)."""

import contextlib
import hashlib
import time
from collections.abc import Iterator
from dataclasses import replace

from django.db.models import Sum

from backend.compiles.models import Slice, TeacherCall
from backend.compiles.states import CANDIDATE_CALLS, CallState
from backend.domain.drafts.offer_plan import OfferState
from backend.domain.drafts.vocabulary import EngineTokens
from backend.drafts.cache import load_drafts
from workers.step.durable import CompileRun
from workers.step.teacher_profile import caps_of
from workers.step.teacher_session import TeacherSession
from workers.teachers.protocol import CompletionRequest, CountingTeacher

BEHIND_S = 2.0  # that an engine's counters may lag behind its answers
MOST_OTHERS = 0.02  # of what it wrote may be somebody else's


def with_proposals(run: CompileRun, slice_row: Slice, request: CompletionRequest) -> CompletionRequest:
    """The request with the slice's drafts as proposals, and a salt that keeps the engine's prefix cache to this tenant;
    as it was for a teacher that takes none."""
    if not caps_of(run.spec.teacher).engine_drafts:
        return request
    plan = slice_row.offer_plan
    proposed = () if plan is None else plan.proposed
    with run.transaction():
        stored = load_drafts(run.tenant_id, run.spec.family, {one.draft_id: one.distance for one in proposed})
    texts = tuple(stored[one.draft_id].text for one in proposed if one.draft_id in stored)
    return replace(request, drafts=texts, cache_salt=cache_salt_of(run))


def cache_salt_of(run: CompileRun) -> str | None:
    """The salt that keeps an engine's prefix cache to the tenant; None for a teacher that takes none."""
    if not caps_of(run.spec.teacher).engine_drafts:
        return None
    return hashlib.sha256(b"kolm/cache_salt/" + run.tenant_id.bytes).hexdigest()[:32]


@contextlib.contextmanager
def engine_counts(run: CompileRun, slice_row: Slice, session: TeacherSession) -> Iterator[None]:
    """Note on the slice's plan what the engine made of its proposals while its candidates are written here. Nothing
    where it wrote more than was billed: it served others meanwhile, and whose drafts it kept is not known."""
    plan, teacher = slice_row.offer_plan, session.teacher
    if plan is None or not plan.proposed or plan.state is OfferState.CLOSED or not isinstance(teacher, CountingTeacher):
        yield
        return
    n_before, before = _n_billed(run, slice_row), teacher.counters()
    yield
    n_billed = _n_billed(run, slice_row) - n_before
    if before is None or not n_billed:
        return
    made = _counts_since(teacher, before, n_billed)
    if made is not None:
        with run.transaction():
            plan = slice_row.offer_plan or plan
            slice_row.offer_plan = replace(plan, engine=plan.engine + made)
            slice_row.save(update_fields=["drafts"])


def _n_billed(run: CompileRun, slice_row: Slice) -> int:
    """The tokens of the slice's answers up to now."""
    calls = TeacherCall.objects.filter(tenant_id=run.tenant_id, compile_id=run.compile_id, state=CallState.APPLIED)
    with run.transaction():
        of_slice = calls.filter(key__startswith=f"{CANDIDATE_CALLS}{slice_row.position}:")
        return of_slice.aggregate(n=Sum("output_tokens"))["n"] or 0


def _counts_since(teacher: CountingTeacher, before: EngineTokens, n_billed: int) -> EngineTokens | None:
    """The counts of answers of `n_billed` tokens, as soon as the engine has counted them; None where they are not
    theirs alone, or it began anew."""
    until = time.monotonic() + BEHIND_S
    while (after := teacher.counters()) is not None:
        made = after - before
        if min(made.written, made.proposed, made.kept) < 0 or made.written > n_billed * (1 + MOST_OTHERS):
            return None
        if made.written >= n_billed * (1 - MOST_OTHERS):
            return made if made.kept <= min(made.proposed, made.written) else None
        if time.monotonic() > until:
            return None
        time.sleep(0.1)
    return None
