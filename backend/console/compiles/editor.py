"""The spec editor: a text that is read as it is typed, its problems by place and line, what it would cost, and a
submission that happens once however often the button is pressed."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any
from uuid import UUID

from django.conf import settings
from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST

from backend.compiles.lifecycle import submission
from backend.compiles.models import Compile, Upload
from backend.compiles.uploads.rows import UploadPurpose, store_upload, with_upload_ids
from backend.console.access import ConsoleRequest, page
from backend.console.compiles.spec_text import MAX_BYTES, SpecText, read_spec, with_budget
from backend.domain.canonical import sha256_hex
from backend.domain.errors import CustomerError, InvalidInput, InvalidSpec
from backend.domain.ids import Prefix, decode_id, encode_id
from backend.domain.labeling.purchases import POINT_USD
from backend.domain.money.teacher_prices import price_json, price_sentence
from backend.domain.number_words import percent
from backend.domain.planning.estimates import Estimate, check_budget
from backend.domain.planning.label_plans import writes_more
from backend.domain.planning.preflight.lines import Preflight, in_order
from backend.domain.roles import Permission
from backend.domain.spec.defaults import buys_in_rounds
from backend.domain.spec.parsing import (
    Spec,
    effective_slices,
    first_votes,
    label_names,
    most_votes,
    parse_spec,
    read_stored_spec,
    slice_sizes,
    votes_as_needed,
)
from backend.drafts.previews import expected_saving
from backend.preflight.asking import preflight_of
from backend.preflight.settings_lines import check_settings
from backend.rest.new_ids import new_uuid7
from backend.tenants.audit import note
from backend.tenants.idempotency import run_once
from backend.tenants.isolation import tenant_scope

DRAFTS_WAIT_S = 3.0
EXAMPLES = Path(settings.ROOT) / "examples"
MAX_PROBLEMS = 50
_DRAFT_NAME = re.compile(r"[a-z0-9_-]{1,80}")
_LINE = re.compile(r"Line (\d{1,7})\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One problem as the editor lists it."""

    pointer: str
    line: int | None
    message: str
    code: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """The result of a check: a spec with its estimate, or faults; `has_budget` is None before there is an
    estimate."""

    faults: list[Fault] = field(default_factory=list)
    spec: Spec | None = None
    estimate: Estimate | None = None
    has_budget: bool | None = None
    summary: list[tuple[str, str]] = field(default_factory=list)

    @property
    def price_line(self) -> str:
        if self.estimate is None:
            return ""
        main, reward = self.estimate.teacher.main, self.estimate.teacher.reward
        rewards = "" if reward is None else f"; rewards by {price_sentence(price_json(reward))}"
        return price_sentence(price_json(main)) + rewards

    @property
    def batch_line(self) -> str:
        """Say what a batch costs and how long it may take, in batch mode."""
        if self.estimate is None or self.estimate.teacher.batch is None:
            return ""
        price = price_sentence(price_json(self.estimate.teacher.batch))
        return f"{price}. Each batch is answered within {self.estimate.batch_window_h} h; the compile waits for it"

    @property
    def is_ample(self) -> bool:
        return (
            self.spec is not None
            and self.estimate is not None
            and self.spec.budget.microusd >= self.estimate.total.high
        )


@page(Permission.COMPILE)
def compile_new(request: ConsoleRequest) -> HttpResponse:
    """The editor. Its form is posted here: `act` says whether to compile, to check, or to upload a file."""
    if request.method == "POST":
        return _handle_post(request)
    name = request.GET.get("example", "")
    text = example_text(name) if name in examples() else ""
    if (source := request.GET.get("from", "")) and not text:
        text = _spec_of(request, source)
    return _editor(request, text=text, budget="", is_checked=bool(text))


@require_POST
@page(Permission.COMPILE)
def check_spec(request: ConsoleRequest) -> HttpResponse:
    """The fragment under the editor, asked for while somebody types."""
    text, budget = request.POST.get("spec", ""), request.POST.get("budget", "")
    checked = check_text(request.team_session.tenant_id, text, budget) if text.strip() else None
    return render(request, "console/compiles/_checked.html", {"checked": checked, "wants_drafts": True})


@require_POST
@page(Permission.COMPILE, atomic=False)
def expected_drafts(request: ConsoleRequest) -> HttpResponse:
    """Show what the draft cache would save, which a worker is asked; the estimate is complete without."""
    tenant_id = request.team_session.tenant_id
    with tenant_scope(tenant_id):
        checked = check_text(tenant_id, request.POST.get("spec", ""), request.POST.get("budget", ""))
    saving = None if checked.spec is None else expected_saving(tenant_id, checked.spec, wait_s=DRAFTS_WAIT_S)
    return render(request, "console/compiles/_drafts.html", {"saving": saving})


@require_POST
@page(Permission.COMPILE, atomic=False)
def preflight_spec(request: ConsoleRequest) -> HttpResponse:
    """Look whether a compile of the text can end: a fragment to htmx, else the editor with the list in it. Runners and
    workers are waited for, so no transaction is open."""
    tenant_id = request.team_session.tenant_id
    text, budget = request.POST.get("spec", ""), request.POST.get("budget", "")
    try:
        with tenant_scope(tenant_id):
            document = with_upload_ids(tenant_id, with_budget(read_spec(text).value, budget))
        spec = parse_spec(document)
        context: dict[str, Any] = {"preflight": preflight_of(tenant_id, spec)[0]}
    except CustomerError as error:
        context = {"fault": error.message}
    if request.htmx:
        return render(request, "console/compiles/_preflight.html", context)
    with tenant_scope(tenant_id):
        return _editor(request, text=text, budget=budget, is_checked=True, **context)


def _settings_of(request: ConsoleRequest, text: str, budget: str) -> Preflight | None:
    """The lines that rows decide, of a text that was refused: nobody is waited for. None where it is no spec."""
    tenant_id = request.team_session.tenant_id
    try:
        spec = parse_spec(with_upload_ids(tenant_id, with_budget(read_spec(text).value, budget)))
        return in_order(check_settings(tenant_id, spec).lines)
    except CustomerError:
        return None


def check_text(tenant_id: UUID, text: str, budget: str) -> Checked:
    """Read, checked to the last row, estimated. In the caller's transaction; never raises for what a customer wrote."""
    try:
        document = read_spec(text)
        value = with_budget(document.value, budget)
    except InvalidInput as error:
        return Checked(faults=_faults(error, None))
    try:
        spec, expected = submission.check(tenant_id, value)
    except CustomerError as error:
        return Checked(faults=_faults(error, document))
    summary, faults = _summary(spec), []
    try:
        check_budget(expected, spec.budget.microusd)
    except InvalidInput as error:
        faults = _faults(error, document)
    return Checked(faults=faults, spec=spec, estimate=expected, has_budget=not faults, summary=summary)


def _handle_post(request: ConsoleRequest) -> HttpResponse:
    text, budget, act = (request.POST.get(name, "") for name in ("spec", "budget", "act"))
    if act == "upload":
        return _upload(request, text, budget)
    if act == "check":
        return _editor(request, text=text, budget=budget, is_checked=True)
    document: SpecText | None = None
    try:
        document = read_spec(text)
        public_id = submit_text(request, text, budget)
    except CustomerError as error:
        faults, preflight = _faults(error, document), _settings_of(request, text, budget)
        return _editor(request, text=text, budget=budget, faults=faults, preflight=preflight, status=422)
    messages.success(request, "The compile is started. This page follows it.")
    return redirect("console:compile", public_id)


def submit_text(request: ConsoleRequest, text: str, budget: str) -> str:
    """Queue a compile of a spec's text, once however often its form is sent; its id. Raises CustomerError."""
    value = with_budget(read_spec(text).value, budget)
    key = _key(request.POST.get("token", ""), budget, text)
    return run_once(request.team_session.tenant_id, key, lambda: _submit(request, value))


def _key(*parts: str) -> str:
    """Return the idempotency key of a form and its text: sent again it is the same compile; changed (after going back),
    another."""
    form_text = "\n".join(parts)
    return f"console/compile/{sha256_hex(form_text.encode('utf-8', 'replace'))}"


def _submit(request: ConsoleRequest, value: Any) -> str:
    row = submission.submit(request.team_session.tenant_id, value, api_key_id=None)
    public_id = encode_id(Prefix.COMPILE, row.id)
    note(request.team_session.tenant_id, actor=request.team_session.actor, action="compile.created", target=public_id)
    return public_id


def _upload(request: ConsoleRequest, text: str, budget: str) -> HttpResponse:
    """A file of JSON lines: stored, and its id shown for the spec."""
    purpose, file = request.POST.get("purpose", ""), request.FILES.get("file")
    try:
        if purpose not in set(UploadPurpose) or file is None:
            raise InvalidInput("Choose a JSON Lines file and its purpose.", code="invalid_request")
        row = store_upload(request.team_session.tenant_id, UploadPurpose(purpose), file.read())
    except InvalidInput as error:
        faults = [Fault(pointer="", line=None, message=error.message, code=error.code), *_faults(error, None)][:20]
        return _editor(request, text=text, budget=budget, upload_faults=faults, status=422)
    return _editor(request, text=text, budget=budget, is_checked=bool(text.strip()), uploaded=row)


def _editor(
    request: ConsoleRequest,
    *,
    text: str,
    budget: str,
    is_checked: bool = False,
    faults: list[Fault] | None = None,
    upload_faults: list[Fault] | None = None,
    uploaded: Upload | None = None,
    preflight: Preflight | None = None,
    fault: str = "",
    status: int = 200,
) -> HttpResponse:
    checked = Checked(faults=faults) if faults else None
    if is_checked and checked is None:
        checked = check_text(request.team_session.tenant_id, text, budget)
    context: dict[str, Any] = {
        "text": text[:MAX_BYTES],
        "budget": budget[:20],
        "checked": checked,
        "wants_drafts": True,
        "preflight": preflight,
        "fault": fault,
        "token": new_uuid7().hex,
        "draft": _draft_name(request),
        "examples": examples(),
        "purposes": [purpose.value for purpose in UploadPurpose],
        "upload_faults": upload_faults,
        "uploaded": uploaded,
        "uploaded_id": "" if uploaded is None else encode_id(Prefix.UPLOAD, uploaded.id),
        "recent": list(Upload.objects.of_tenant(request.team_session.tenant_id).order_by("-created_at")[:5]),
    }
    context["recent"] = [(encode_id(Prefix.UPLOAD, one.id), one) for one in context["recent"]]
    return render(request, "console/compiles/new.html", context, status=status)


def _draft_name(request: ConsoleRequest) -> str:
    """Name what the text began as, so that the browser keeps one draft for each beginning."""
    if (name := request.POST.get("draft", "")) and _DRAFT_NAME.fullmatch(name):
        return name
    example, source = request.GET.get("example", ""), request.GET.get("from", "")
    name = f"example-{example}" if example else f"from-{source}" if source else "new"
    return name if _DRAFT_NAME.fullmatch(name) else "new"


def _faults(error: CustomerError, document: SpecText | None) -> list[Fault]:
    problems = getattr(error, "problems", ())
    if not problems:
        return [Fault(pointer="", line=None, message=error.message, code=error.code)]
    return [
        Fault(
            pointer=problem.pointer,
            line=_line_in(problem.message) if document is None else document.line_of(problem.pointer),
            message=problem.message,
            code=problem.code,
        )
        for problem in problems[:MAX_PROBLEMS]
    ]


def _line_in(message: str) -> int | None:
    """The line that a message about a text without structure begins with."""
    named = _LINE.match(message)
    return None if named is None else int(named[1])


def _summary(spec: Spec) -> list[tuple[str, str]]:
    """Teacher and K settings, as they will be used."""
    sampling, teacher = spec.sampling, spec.teacher
    slices = effective_slices(spec)
    model = teacher.model if teacher.provider == "openai_compatible" else f"{teacher.model} ({teacher.provider})"
    return [
        ("Task", f"{spec.name}, {_answers(spec)}, {len(slices)} slices"),
        ("Teacher", model + (f", falls back to {teacher.fallback_model}" if teacher.fallback_model else "")),
        ("Candidates", f"{_pools(spec)}, by {sampling.method}"),
        ("Labels", _votes(spec)),
        ("How many", _plan(spec)),
        ("If a slice is poor", ", then ".join(sampling.on_gap)),
        ("Drafts", spec.draft_cache.verify if spec.draft_cache.enabled else "off"),
        ("Gate", f"{_k_min(spec)}, accuracy {spec.gate.accuracy_lower:g} at its lower bound"),
    ]


def _pools(spec: Spec) -> str:
    """N and K of the slices, as their shares make them."""
    sizes = slice_sizes(spec)
    n, k = _span([size.n for size in sizes]), _span([size.k for size in sizes])
    return f"N = {n} per slice" + (" by its share" if "to" in n else "") + f", K = {k} kept"


def _span(counts: Sequence[int]) -> str:
    return str(counts[0]) if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"


def _k_min(spec: Spec) -> str:
    return "K-score of its kind" if spec.gate.k_min is None else f"K-score {spec.gate.k_min:g}"


def _votes(spec: Spec) -> str:
    if votes_as_needed(spec):
        how_many = f"one vote per pick, up to {most_votes(spec)} where label or teacher are unsure"
        return f"{how_many}, at least {percent(round(spec.sampling.min_agreement * 1_000_000))} sure"
    return (
        f"{first_votes(spec)} votes per pick, at least {percent(round(spec.sampling.min_agreement * 1_000_000))} agreed"
    )


def _plan(spec: Spec) -> str:
    if not buys_in_rounds(spec):
        return "as many as K says"
    worth = spec.plan.point_usd or POINT_USD
    until = ", until the gate is passed with a margin" if spec.plan.stop == "gate" else ""
    more = "; more candidates where they are worth it" if writes_more(spec) else ""
    return f"in rounds, while a point of accuracy costs less than ${worth:g}{until}{more}"


def _answers(spec: Spec) -> str:
    return f"{len(label_names(spec))} labels" if spec.output.type == "label" else f"{spec.output.type} answers"


@cache
def examples() -> dict[str, str]:
    """Specs to start from, by name: the files that ship with kolm."""
    return {path.stem: path.name for path in sorted(EXAMPLES.glob("*.yaml"))}  # none where they were not shipped


def example_text(name: str) -> str:
    return (EXAMPLES / examples()[name]).read_text(encoding="utf-8")


def _spec_of(request: ConsoleRequest, public_id: str) -> str:
    """The spec of a compile of this tenant as YAML, to be changed and compiled again."""
    import yaml

    compile_id = decode_id(Prefix.COMPILE, public_id)
    row = Compile.objects.of_tenant(request.team_session.tenant_id).filter(id=compile_id).only("spec").first()
    if row is None:
        return ""
    try:
        document = read_stored_spec(row.spec).model_dump(mode="json", by_alias=True, exclude_defaults=True)
    except InvalidSpec:
        document = row.spec  # of an older form: the editor tells what has changed
    # libyaml writes 1 MB in 0.3 s; yaml in Python alone takes over a second
    text = yaml.dump(document, Dumper=yaml.CSafeDumper, allow_unicode=True, sort_keys=False, width=110)
    return str(text)
