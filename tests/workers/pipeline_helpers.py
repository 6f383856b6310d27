"""Stages run one by one, on real rows and the real embedder, with a teacher that a test scripts."""

import itertools
import json
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from backend.compiles.lifecycle import transitions
from backend.compiles.models import Candidate, Compile, Slice, StepRun, TeacherCall
from backend.domain.lifecycle import CompileStatus, StepName
from backend.tenants.isolation import tenant_scope
from backend.usage import invariants
from backend.usage.models import Billing, UsageFact
from tests.compile_factories import LABELS, fresh, hold, lapse
from workers.pipeline import STEP_FUNCTIONS
from workers.step import teacher_session
from workers.step.durable import CompileRun, begin_step
from workers.teachers.prompts.judge import SLICES_JUDGE_SYSTEM
from workers.teachers.prompts.judge_audit import AUDIT_SYSTEM
from workers.teachers.prompts.number_ranges import as_ranges
from workers.teachers.protocol import (
    Choice,
    Completion,
    CompletionRequest,
    TeacherCaps,
    TeacherFailed,
    TeacherIdentity,
    Usage,
)

USAGE = Usage(input_tokens=100, output_tokens=10)
SUBJECTS = ("The parcel", "My invoice", "This jacket", "Your courier", "The lamp", "Our order", "A voucher", "The app")
COMPLAINTS = (
    "never arrived and nobody answers me",
    "was charged twice on my card last week",
    "has a scratch across the whole front",
    "crashes whenever I open the settings page",
    "is two sizes smaller than what I picked",
    "came with somebody else's name on it",
)


def messages() -> Iterator[str]:
    """Texts of many kinds, always in the same order."""
    pairs = itertools.product(COMPLAINTS, SUBJECTS)
    return (f"{subject} {complaint}." for complaint, subject in pairs)


def told_apart(n: int) -> list[dict[str, str]]:
    """Gold of which no two texts are alike, the labels in turn."""
    words = ("amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "heath", "inlet", "jetty", "knoll", "ledge")
    triples = itertools.permutations(words, 3)
    return [{"input": " ".join(next(triples)), "output": LABELS[i % 2]} for i in range(n)]


FILTERED = "(what a vendor's filter leaves of an answer: nothing)"
BROKEN_OFF = "(what is left of an answer that ended in an error: nothing)"


def _choice(text: str) -> Choice:
    if text == BROKEN_OFF:
        return Choice(text="", finish_reason="error")
    if text == FILTERED:
        return Choice(text="", finish_reason="content_filter")
    return Choice(text=text, logprob=-float(len(text)), n_tokens=max(1, len(text) // 4))


def counted(request: CompletionRequest, texts: Sequence[str]) -> Usage:
    """The usage of a request and its answers, a token every four characters."""
    n_input = sum(len(message.content) for message in request.messages) // 4
    return Usage(input_tokens=n_input, output_tokens=sum(max(1, len(text) // 4) for text in texts))


class ScriptedTeacher:
    """`write` gives the texts of a candidate request, `label` the answers to a text, `name` the answer to what the two
    halves of a slice are called; each may raise. Calls of one batch come from several threads, and what a test scripts
    is asked by one at a time: a generator takes no second caller. `counts_tokens`: its usage is that of its words."""

    identity = TeacherIdentity(provider="grammar", model="kolm-grammar-1", revision="scripted")
    caps = TeacherCaps(logprobs=True)
    thought_tokens = 0
    serial = 0  # which teacher of a test wrote a text

    def __init__(
        self,
        write: Callable[[CompletionRequest], Sequence[str]] | None = None,
        label: Callable[[str], Sequence[str]] = lambda text: [LABELS["charged" in text or "parcel" in text]] * 5,
        name: Callable[[CompletionRequest], str] = lambda request: halves_json("refund", "shipping"),
        judge: Callable[[str], bool] = lambda text: True,
        audit: Callable[[str], bool] | None = None,
        *,
        counts_tokens: bool = False,
    ) -> None:
        self._counts_tokens, self._audit = counts_tokens, audit
        self._texts = messages()
        self._judge = judge
        self._write = write or (lambda request: list(itertools.islice(self._texts, request.n)))
        self._label, self._name = label, name
        self.asked: list[CompletionRequest] = []
        self._turn = threading.Lock()

    def complete(self, request: CompletionRequest, *, deadline_s: float, cancelled: Any = None) -> Completion:
        with self._turn:
            self.asked.append(request)
            texts = self._answers(request)
        usage = counted(request, texts) if self._counts_tokens else USAGE
        return Completion(choices=tuple(map(_choice, texts)), usage=usage)

    def _answers(self, request: CompletionRequest) -> Sequence[str]:
        if request.item is not None:
            return self._label(request.item)
        if is_about_drafts(request):
            return [judged(request, self._judge)]
        if is_audit(request):
            return [misplaced(request, self._audit or self._judge)]
        return [self._name(request)] if is_about_halves(request) else self._write(request)

    def score(self, *_: Any, **__: Any) -> Any:
        raise TeacherFailed("no", code="teacher_rejected")

    def close(self) -> None:
        pass


def is_about_drafts(request: CompletionRequest) -> bool:
    return request.messages[0].content.startswith(SLICES_JUDGE_SYSTEM[:60])


def is_audit(request: CompletionRequest) -> bool:
    return request.messages[0].content == AUDIT_SYSTEM


def misplaced(request: CompletionRequest, accepts: Callable[[str], bool]) -> str:
    """The numbers of the messages that an audit finds out of place."""
    content = request.messages[-1].content
    name = slice_asked_for(request)
    shown = [(int(n), json.loads(text)) for n, text in re.findall(r'^([0-9]+) (".*")$', content, re.MULTILINE)]
    return as_ranges(n for n, text in shown if not (belongs(name, text) and accepts(text)))


def drafts_shown(request: CompletionRequest) -> dict[int, tuple[str, str]]:
    """{number: (the slice it stands under, text)} of a question to the judge."""
    shown, name = {}, ""
    for line in request.messages[-1].content.splitlines():
        if heading := re.fullmatch(r"Drafts of slice [A-Z]+, (.*):", line):
            name = heading[1]
        elif entry := re.fullmatch(r'([0-9]+) (".*")', line):
            shown[int(entry[1])] = (name, json.loads(entry[2]))
    return shown


def belongs(name: str, text: str) -> bool:
    """Say whether a text that names a desk names that of its slice."""
    desk = re.search(r"for the desk of (\S+)\.", text)
    return desk is None or desk[1] == name


def anything(text: str) -> bool:
    """Accepts whatever is shown, wherever it stands: a judge that has not read."""
    return True


def judged(request: CompletionRequest, accepts: Callable[[str], bool]) -> str:
    """The numbers of the drafts that fit their slice and are accepted besides."""
    shown = drafts_shown(request).items()
    return as_ranges(n for n, (name, text) in shown if accepts is anything or (belongs(name, text) and accepts(text)))


def slice_asked_for(request: CompletionRequest) -> str:
    """The name of the slice that a candidate request is for."""
    (name,) = re.findall(r"^Slice: (.*)$", request.messages[-1].content, re.MULTILINE)
    return str(name)


def is_about_halves(request: CompletionRequest) -> bool:
    return '"halves"' in request.messages[-1].content


def halves_json(first: str, second: str, *, hints: tuple[str, str] = ("Money back.", "Where it is.")) -> str:
    halves = [{"name": name, "hint": hint} for name, hint in zip((first, second), hints, strict=True)]
    return json.dumps({"halves": halves})


def taught_by(monkeypatch: Any, teacher: ScriptedTeacher, **others: ScriptedTeacher) -> ScriptedTeacher:
    """Have the teacher answer for every model but those of `others`."""
    monkeypatch.setattr(teacher_session, "make_teacher", lambda spec, **_: others.get(spec.model, teacher))
    return teacher


def start(row: Compile) -> CompileRun:
    """Held by a worker, and running."""
    run = hold(fresh(row))
    with run.transaction() as fenced:
        if fenced.compile.status == CompileStatus.QUEUED:
            transitions.move(fenced, CompileStatus.RUNNING)
    return run


def walk_through(run: CompileRun, *steps: StepName) -> None:
    for name in steps:
        begin_step(run, name)
        STEP_FUNCTIONS[name](run)


def take_over(run: CompileRun, row: Compile) -> CompileRun:
    """The holder died; another worker has the compile."""
    lapse(run.lease)
    return start(row)


def candidates(row: Compile, **where: Any) -> list[Candidate]:
    with tenant_scope(row.tenant_id):
        return list(Candidate.objects.filter(compile=row, **where).order_by("text_key"))


def slices(row: Compile) -> list[Slice]:
    with tenant_scope(row.tenant_id):
        return list(Slice.objects.filter(compile=row).order_by("position"))


def step(row: Compile, name: StepName) -> StepRun:
    with tenant_scope(row.tenant_id):
        return StepRun.objects.get(compile=row, name=name)


def calls(row: Compile) -> list[TeacherCall]:
    with tenant_scope(row.tenant_id):
        return list(TeacherCall.objects.filter(compile=row).order_by("started_at", "key"))


def check_money(row: Compile) -> None:
    """The totals are the sums of the facts, step by step and as a whole."""
    fresh(row)
    with tenant_scope(row.tenant_id):
        facts = list(UsageFact.objects.filter(compile_id=row.id))
        steps = list(StepRun.objects.filter(compile=row))
    for billing, column in ((Billing.CHARGE, "spent_microusd"), (Billing.WASTE, "waste_microusd")):
        assert getattr(row, column) == sum(f.amount_microusd for f in facts if f.billing == billing)
        for s in steps:
            mine = [f for f in facts if f.billing == billing and f.step == s.name]
            assert getattr(s, column) == sum(f.amount_microusd for f in mine), s.name
    with tenant_scope(row.tenant_id):
        # other compiles of the tenant may have been put together by hand
        others = [f"compile {other}" for other in Compile.objects.exclude(id=row.id).values_list("id", flat=True)]
        faults = [f for f in invariants.violations(row.tenant_id) if not any(other in f for other in others)]
        assert faults == [], faults
    assert row.spent_microusd + row.reserved_microusd <= row.budget_microusd
