"""Pages of the guided first compile. The form is one page: what is answered decides what is shown beside it, and the
spec that it makes is checked and estimated by what checks the editor's text."""

from typing import Any

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST

from backend.compiles import teacher_keys
from backend.compiles.models import TeacherKey, Upload
from backend.compiles.teacher_key_trials import try_key
from backend.compiles.uploads.rows import UploadPurpose
from backend.console.access import ConsoleRequest, page
from backend.console.compiles.editor import Checked, check_text, submit_text
from backend.console.rows_and_forms import own_row
from backend.console.start.form import DEMO, MOST_DESCRIBED, OTHER, StartForm, is_address, provider_choices
from backend.console.uploads.forecasts import forecast_of_compile
from backend.console.uploads.pages import source_context, stored_source
from backend.domain.errors import CustomerError, InvalidInput
from backend.domain.ids import Prefix, encode_id
from backend.domain.money.teacher_catalog import wrong_vendor
from backend.domain.roles import Permission
from backend.domain.source_data.profile import unfit_labels
from backend.domain.source_data.source import Source
from backend.domain.source_data.spec_draft import guess_task, slug_of
from backend.rest.new_ids import new_uuid7
from backend.tenants.isolation import tenant_scope

RECENT = 6


@require_http_methods(["GET", "POST"])
@page(Permission.COMPILE)
def start(request: ConsoleRequest) -> HttpResponse:
    """Ask for data first; with data show the rest of the form, whose POST starts the compile."""
    public_id = request.POST.get("upload", request.GET.get("upload", ""))
    if not public_id:
        return _choose_data(request)
    upload = own_row(Upload, request.team_session.tenant_id, Prefix.UPLOAD, public_id)
    if upload.purpose != UploadPurpose.EXAMPLES:
        return _choose_data(request, fault="A first compile needs examples with answers; this upload has none.")
    source = stored_source(upload)
    if fault := unfit_labels(source.profile):
        return _choose_data(request, fault=fault)
    form = _form(request, upload, source)
    if request.method == "GET":
        return _form_page(request, upload, source, form)
    try:
        compile_id = submit_text(request, form.spec_text(source, public_id), "")
    except CustomerError as error:
        return _form_page(request, upload, source, form, fault=error.message, status=422)
    messages.success(request, "Your compile is started.")
    return redirect("console:compile", compile_id)


@require_POST
@page(Permission.COMPILE)
def check(request: ConsoleRequest) -> HttpResponse:
    """The fragment beside the form: the models of the vendor, the spec, its problems, its estimate."""
    upload = own_row(Upload, request.team_session.tenant_id, Prefix.UPLOAD, request.POST.get("upload", ""))
    source = stored_source(upload)
    context = _beside(request, upload, source, _form(request, upload, source))
    return render(request, "console/start/_beside.html", context)


@require_POST
@page(Permission.COMPILE)
def forecast(request: ConsoleRequest) -> HttpResponse:
    """The fragment of the quality to expect, asked for again while a worker measures it."""
    upload = own_row(Upload, request.team_session.tenant_id, Prefix.UPLOAD, request.POST.get("upload", ""))
    context = _beside(request, upload, source := stored_source(upload), _form(request, upload, source))
    return render(request, "console/start/_forecast.html", context | {"upload_form": True})


@require_POST
@page(Permission.KEYS, atomic=False)
def store_key(request: ConsoleRequest) -> HttpResponse:
    """Store a pasted key and ask its vendor for the list of models, which costs nothing: the list of keys anew, with
    what came of it. A key of another vendor is not stored."""
    session, secret = request.team_session, request.POST.get("secret", "").strip()
    form = StartForm.of(request.POST, name="", task="", n_labels=0)
    vendor = form.vendor
    key_id, verdict = form.api_key, ""
    is_good = False
    try:
        if not 8 <= len(secret) <= 4_096:
            raise InvalidInput("Paste the whole key, then test it.")
        if vendor is not None and (wrong := wrong_vendor(secret, vendor)) is not None:
            raise InvalidInput(wrong)
        if not is_address(form.teacher_url):
            raise InvalidInput("Give the address of the teacher first, such as https://llm.example.com/v1.")
        with tenant_scope(session.tenant_id):
            name = vendor.name if vendor is not None else form.teacher_url[:100]
            row = teacher_keys.store(session.tenant_id, name=name, secret=secret, actor=session.actor)
        answer = try_key(row, form.teacher_url)
        key_id, verdict, is_good = encode_id(Prefix.TEACHER_KEY, row.id), answer.text, answer.is_good
    except InvalidInput as error:
        verdict = error.message
    with tenant_scope(session.tenant_id):
        context = {"keys": _keys(request), "chosen_key": key_id, "verdict": verdict, "is_good": is_good}
        return render(request, "console/start/_keys.html", context | {"may_keys": True})


def _choose_data(request: ConsoleRequest, *, fault: str = "") -> HttpResponse:
    rows = Upload.objects.of_tenant(request.team_session.tenant_id).filter(purpose=UploadPurpose.EXAMPLES)
    recent = [(encode_id(Prefix.UPLOAD, row.id), row) for row in rows.order_by("-created_at")[:RECENT]]
    context = {"recent": recent, "fault": fault, "drop_next": "start"}
    return render(request, "console/start/data.html", context, status=422 if fault else 200)


def _form(request: ConsoleRequest, upload: Upload, source: Source) -> StartForm:
    n_labels = len(source.profile.labels)
    return StartForm.of(request.POST, name=slug_of(upload.name), task=guess_task(source)[:500], n_labels=n_labels)


def _form_page(
    request: ConsoleRequest, upload: Upload, source: Source, form: StartForm, *, fault: str = "", status: int = 200
) -> HttpResponse:
    labels = source.profile.labels[:MOST_DESCRIBED]
    context = {
        **source_context(source),
        **_beside(request, upload, source, form),
        "upload": upload,
        "form": form,
        "fault": fault,
        "about": list(zip(labels, (*form.descriptions, *[""] * len(labels)), strict=False)),
        "n_not_described": max(0, len(source.profile.labels) - MOST_DESCRIBED),
        "providers": provider_choices(),
        "keys": _keys(request),
        "chosen_key": form.api_key,
        "may_keys": request.team_session.may(Permission.KEYS),
        "token": request.POST.get("token", new_uuid7().hex),
    }
    return render(request, "console/start/start.html", context, status=status)


def _beside(request: ConsoleRequest, upload: Upload, source: Source, form: StartForm) -> dict[str, Any]:
    public_id, text, fault = encode_id(Prefix.UPLOAD, upload.id), "", ""
    checked: Checked | None = None
    try:
        text = form.spec_text(source, public_id)
        checked = check_text(request.team_session.tenant_id, text, "")
    except InvalidInput as error:
        fault = error.message
    return {
        "upload_id": public_id,
        "form": form,
        "models": form.models,
        "is_other": form.provider == OTHER,
        "is_demo": form.provider == DEMO,
        "spec_text": text,
        "checked": checked,
        "form_fault": fault,
        "forecast": forecast_of_compile(upload, checked),
        "wants_drafts": False,
    }


def _keys(request: ConsoleRequest) -> list[tuple[str, TeacherKey]]:
    rows = TeacherKey.objects.of_tenant(request.team_session.tenant_id).order_by("-created_at")[:50]
    return [(encode_id(Prefix.TEACHER_KEY, row.id), row) for row in rows]
