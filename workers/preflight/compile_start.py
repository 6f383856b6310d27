"""The beginning of a compile: its preflight, before a candidate is paid for.

The list is kept with the compile and shown as an event. Where a line failed the compile ends here, refused with
`preflight_failed`; it has cost a tiny call to each of its models at most. An arm of an ablation begins with what
another compile has paid for, and has none.
"""

import logging
from collections.abc import Mapping
from typing import Any

from django.db.models import Q

from backend.compiles import leases
from backend.compiles.events import append_event, touch
from backend.compiles.models import TeacherCall
from backend.compiles.states import ANSWERED_STATES, DELEGATE_CALLS, REWARD_CALLS
from backend.domain.dialects.faults import MAY_PASS
from backend.domain.errors import CustomerError
from backend.domain.lifecycle import StepName
from backend.domain.planning.preflight.asked_models import AskedModel, asked_models
from backend.domain.planning.preflight.lines import (
    Check,
    Preflight,
    PreflightFailed,
    PreflightLine,
    in_order,
    passed_line,
)
from backend.domain.planning.preflight.teacher_lines import skipped_lines, unasked_lines
from backend.preflight.asking import FIRST, has_failed
from backend.preflight.runner_lines import check_runners
from backend.preflight.settings_lines import check_settings
from backend.preflight.teacher_checks import keep_answer, passed_before
from backend.tenants.isolation import tenant_scope
from workers.embedding.sentence import load_embedder
from workers.preflight.gold_checks import gold_lines
from workers.preflight.tiny_call import line_of_failure, lines_of_answer, open_asked, tiny_request
from workers.step.durable import CompileRun
from workers.step.teacher_calls import PlannedCall, ask_batch
from workers.teachers.protocol import TeacherFailed

log = logging.getLogger("kolm.preflight")

CALL_KEYS = {  # the beginning of the last two says whose key pays
    Check.TEACHER: "preflight",
    Check.FALLBACK: "preflight:fallback",
    Check.REWARD: f"{REWARD_CALLS}preflight",
    Check.JUDGE: f"{DELEGATE_CALLS}preflight",
}
BESIDE = (Check.EMBEDDER, Check.GATE)  # what an answer about the teacher has besides
STEP = StepName.SLICING  # the first one: it waits for this, and is charged for the call
DEADLINE_S = 60.0  # twice what a small model on a processor needs for an answer's form; room for thoughts is added
PATIENT_ATTEMPTS = 3  # of the compile, while an endpoint fails in a way that may pass


def begin_compile(run: CompileRun) -> None:
    """Make the preflight unless this compile has passed it. Raises PreflightFailed; TeacherFailed where the endpoint
    may answer in a moment, and the compile comes again."""
    with run.transaction() as fenced:
        kept, is_arm = fenced.compile.preflight, fenced.compile.ablation_of is not None
        budget_microusd = fenced.compile.budget_microusd
    if is_arm or (kept is not None and Preflight.from_json(kept).passed):
        return
    with tenant_scope(run.tenant_id):
        settled = check_settings(run.tenant_id, run.spec, budget_microusd=budget_microusd)
    lines = [*settled.lines, *check_runners(run.tenant_id, run.spec, extracts=settled.extracts)]
    if has_failed(lines):
        lines += unasked_lines(run.spec, FIRST)
    else:
        beside = [_embedder_line(run), *gold_lines(run.tenant_id, run.spec)]
        run.stop.check()
        lines += beside
        lines += unasked_lines(run.spec, FIRST) if has_failed(beside) else _ask_models(run, beside)
    preflight = in_order(lines)
    with run.transaction() as fenced:
        touch(fenced.compile, preflight=preflight.to_json())
        data = {"passed": preflight.passed, "lines": [line.to_json() for line in preflight.lines]}
        append_event(run.tenant_id, run.compile_id, "compile.preflight", data)
    if not preflight.passed:
        raise PreflightFailed(preflight)


def _embedder_line(run: CompileRun) -> PreflightLine:
    embedder = load_embedder(run.spec.embedder).identity.partition("@")[0]
    return passed_line(Check.EMBEDDER, f"The embedder loads: {embedder}.")


def _ask_models(run: CompileRun, beside: list[PreflightLine]) -> list[PreflightLine]:
    lines: list[PreflightLine] = []
    for asked in asked_models(run.spec):
        kept_beside = beside if asked.check is Check.TEACHER else []
        lines += _ask(run, asked, kept_beside, is_patient=not has_failed(lines))
    return lines


def _ask(run: CompileRun, asked: AskedModel, beside: list[PreflightLine], *, is_patient: bool) -> list[PreflightLine]:
    """The lines of a model: as it answered some minutes ago, or to a call that this compile journals and pays; kept
    with those that a worker looks at `beside` it. `is_patient`: whether to come again for one that may answer in a
    moment."""
    if not asked.is_asked:
        return skipped_lines(run.spec)
    with tenant_scope(run.tenant_id):
        known = passed_before(run.tenant_id, asked)
    if known is not None:
        return [line for line in known if line.check not in BESIDE]
    try:
        lines = _call(run, asked)
    except TeacherFailed as failure:
        may_pass = failure.retryable and (failure.fault is None or failure.fault in MAY_PASS)
        if is_patient and may_pass and leases.attempts_of(run.lease) < PATIENT_ATTEMPTS:
            raise TeacherFailed(asked.in_its_words(failure.message), code=failure.code) from None
        return [line_of_failure(asked, failure)]
    except CustomerError as refused:
        return [line_of_failure(asked, refused)]
    with run.transaction():
        keep_answer(run.tenant_id, asked, [*beside, *lines])
    return lines


def _call(run: CompileRun, asked: AskedModel) -> list[PreflightLine]:
    with open_asked(run.tenant_id, run.spec, asked, run.prices) as session:
        plan = PlannedCall(key=_key(run, asked), request=tiny_request(asked), deadline_s=DEADLINE_S)
        (made,) = ask_batch(run, STEP, session.teacher, session.price, [plan])
        return lines_of_answer(
            asked, session.teacher, made.choices[0], latency_ms=made.latency_ms, cost=made.cost_microusd
        )


def _key(run: CompileRun, asked: AskedModel) -> str:
    """The name of the call. One that was answered with nothing, by a filter or a server's parser, is not taken for the
    answer again: whoever resumes the compile had that changed."""
    key = CALL_KEYS[asked.check]
    with run.transaction():
        calls = TeacherCall.objects.filter(
            tenant_id=run.tenant_id, compile_id=run.compile_id, state__in=ANSWERED_STATES
        ).filter(Q(key=key) | Q(key__startswith=f"{key}:again"))
        n = sum(_is_empty(call.choices[0]) for call in calls)
    return f"{key}:again{n}" if n else key


def _is_empty(choice: Mapping[str, Any]) -> bool:
    return choice["finish_reason"] == "content_filter" or not choice["text"].strip()
