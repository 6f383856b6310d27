"""The settings page: the team's name, keys for teachers, data retention, the login rule, export, deletion."""

import json
from collections.abc import Iterator
from tempfile import TemporaryFile
from typing import Any, BinaryIO
from uuid import UUID

from django.conf import settings
from django.contrib import messages
from django.db import transaction
from django.http import HttpResponse, StreamingHttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_GET, require_POST

from backend.artifacts.signing import sign_document
from backend.billing.models import Subscription, SubscriptionStatus
from backend.compiles import teacher_keys
from backend.compiles.models import TeacherKey
from backend.compiles.teacher_key_trials import try_key
from backend.console.access import page, person_page, recently_authenticated
from backend.console.second_factor import has_factor
from backend.domain.errors import Conflict, CustomerError, Forbidden, InvalidInput, NotFound
from backend.domain.ids import Prefix, decode_id, encode_id
from backend.domain.roles import Permission
from backend.drafts.reading import Reader
from backend.rest.streaming import streamed_file
from backend.tenants import audit
from backend.tenants.isolation import tenant_scope
from backend.tenants.models import Erasure
from backend.tenants.team import members, team_settings
from backend.tenants.team.email import send
from backend.tenants.tenant_data import deletion
from backend.tenants.tenant_data.export import write_zip

LONGEST_SECRET = 4_096


@require_GET
@page(Permission.KEYS)
def settings_page(request: Any) -> HttpResponse:
    """Show the settings to whoever may do at least a part of what stands there; each part asks for its own
    permission."""
    return _render(request)


@require_POST
@page(Permission.SETTINGS)
def rename(request: Any) -> HttpResponse:
    return _change_and_show(
        request,
        lambda session: members.rename(session.tenant_id, request.POST.get("name", ""), actor=session.actor),
    )


@require_POST
@page(Permission.SETTINGS)
def change_retention(request: Any) -> HttpResponse:
    def change(session: Any) -> None:
        days = {name: _days(request.POST.get(name, ""), name) for name in ("captures_days", "candidates_days")}
        team_settings.change(session.tenant_id, actor=session.actor, **days)

    return _change_and_show(request, change)


@require_POST
@page(Permission.SETTINGS)
def change_log_in(request: Any) -> HttpResponse:
    """Change the login rule. An owner who requires a second factor must have one, or would lose access."""

    def change(session: Any) -> None:
        is_required = request.POST.get("is_mfa_required") == "on"
        if is_required and not has_factor(session.user_id):
            raise InvalidInput("Set up a second factor for yourself first, or you would lose access too.")
        team_settings.change(session.tenant_id, actor=session.actor, is_mfa_required=is_required)

    return _change_and_show(request, change)


@require_POST
@page(Permission.KEYS)
def store_teacher_key(request: Any) -> HttpResponse:
    def store(session: Any) -> None:
        name, secret = request.POST.get("name", "").strip(), request.POST.get("secret", "").strip()
        if not 0 < len(name) <= 100 or "\x00" in name:
            raise InvalidInput("Give the key a name of 1 to 100 characters.")
        if not 8 <= len(secret) <= LONGEST_SECRET or "\x00" in secret:
            raise InvalidInput(f"A teacher key has 8 to {LONGEST_SECRET} characters; copy it whole.")
        teacher_keys.store(session.tenant_id, name=name, secret=secret, actor=session.actor)

    return _change_and_show(request, store)


@require_POST
@page(Permission.KEYS)
def delete_teacher_key(request: Any, key: str) -> HttpResponse:
    session = request.team_session
    teacher_keys.delete(session.tenant_id, decode_id(Prefix.TEACHER_KEY, key), actor=session.actor)
    messages.success(request, "The key is deleted.")
    return redirect("console:settings")


@require_POST
@page(Permission.KEYS, atomic=False)
def test_teacher_key(request: Any, key: str) -> HttpResponse:
    """Ask the provider for its list of models with this key: it costs nothing and says whether the key opens. The
    answer stands beside the key; without a script it is at the page's top."""
    session = request.team_session
    with tenant_scope(session.tenant_id):
        row = teacher_keys.find(session.tenant_id, decode_id(Prefix.TEACHER_KEY, key))
    verdict = try_key(row, request.POST.get("base_url", ""))
    if request.htmx:
        return render(request, "console/account/key_verdict.html", {"row": row, "verdict": verdict})
    (messages.success if verdict.is_good else messages.error)(request, f"{row.name}: {verdict.text}")
    return redirect("console:settings")


@require_POST
@page(Permission.OWN, atomic=False)
@recently_authenticated
def export_all(request: Any) -> StreamingHttpResponse:
    """A zip of everything, built on disk and sent as it is read."""
    session = request.team_session
    with tenant_scope(session.tenant_id):
        target = encode_id(Prefix.TENANT, session.tenant_id)
        audit.note(session.tenant_id, actor=session.actor, action="tenant.exported", target=target)
    file = TemporaryFile()  # noqa: SIM115 - who reads it out closes it
    reader = Reader(session.tenant_id)
    write_zip(session.tenant_id, file, openers={"drafts_draft": lambda row: {"text": reader.text(row)}})
    return streamed_file(request, _ReadOut(file), content_type="application/zip", filename=f"{target}.zip", a_piece=4)


class _ReadOut:
    """A file from its beginning, 64 KB at a time; closed at its end, or with the response."""

    def __init__(self, file: BinaryIO) -> None:
        file.seek(0)
        self._file = file

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        chunk = b"" if self._file.closed else self._file.read(1 << 16)
        if not chunk:
            self.close()
            raise StopIteration
        return chunk

    def close(self) -> None:
        self._file.close()


@require_POST
@page(Permission.OWN, atomic=False)
@recently_authenticated
def delete_tenant(request: Any) -> HttpResponse:
    """Owner, asked again who he is, who types the team's name. The door closes at once; then everything goes."""
    session = request.team_session
    try:
        with tenant_scope(session.tenant_id):
            _check_nothing_is_billed(session.tenant_id)
            row = deletion.ask(
                session.tenant_id,
                user_id=session.user_id,
                typed_name=request.POST.get("name", ""),
                actor=session.actor,
            )
    except InvalidInput as fault:
        with tenant_scope(session.tenant_id):
            return _render(request, error=fault.message, status=422)
    row = deletion.erase(row.id, sign=lambda payload: sign_document(payload, deletion.RECEIPT_TYPE))
    send(
        session.email,
        f"[{settings.KOLM_SITE_NAME}] Your team has been deleted",
        _DELETION_EMAIL.format(name=session.tenant_name, link=_receipt_link(row)),
    )
    return redirect("console:deletion", erasure=encode_id(Prefix.ERASURE, row.id))


def _check_nothing_is_billed(tenant_id: UUID) -> None:
    """Stripe would go on with a subscription that nobody here knows any more. Raises Conflict."""
    running = Subscription.objects.of_tenant(tenant_id).filter(
        status__in=(SubscriptionStatus.ACTIVE, SubscriptionStatus.PAST_DUE)
    )
    if running.exists():
        raise Conflict(
            "This team has a paid plan: cancel the subscription under Usage & bills first.",
            code="subscription_running",
        )


@require_GET
@person_page
def deletion_receipt(request: Any, erasure: str) -> HttpResponse:
    """The signed receipt, for the person who asked for the deletion and nobody else."""
    row = Erasure.objects.filter(id=decode_id(Prefix.ERASURE, erasure), user_id=request.user.pk).first()
    if row is None:
        raise NotFound("There is no such receipt.")
    if request.GET.get("format") == "json" and row.receipt is not None:
        answer = HttpResponse(json.dumps(row.receipt, indent=1), content_type="application/json")
        answer["Content-Disposition"] = f'attachment; filename="{erasure}.dsse.json"'
        return answer
    context = {"row": row, "public_id": erasure, "statement": deletion.statement_of(row)}
    return render(request, "console/account/deletion.html", context)


def _change_and_show(request: Any, change: Any) -> HttpResponse:
    """Do it and show the page again; what the form had wrong is said on it."""
    try:
        with transaction.atomic():
            change(request.team_session)
    except Forbidden:
        raise
    except CustomerError as fault:
        return _render(request, error=fault.message, status=422)
    messages.success(request, "Saved.")
    return redirect("console:settings")


def _render(request: Any, *, status: int = 200, **more: Any) -> HttpResponse:
    session = request.team_session
    rows = TeacherKey.objects.of_tenant(session.tenant_id).order_by("-created_at")
    context = {
        "teacher_keys": [(row, encode_id(Prefix.TEACHER_KEY, row.id)) for row in rows],
        "kept": team_settings.settings_of(session.tenant_id),
        "public_id": encode_id(Prefix.TENANT, session.tenant_id),
        "may_settings": session.may(Permission.SETTINGS),
        "may_own": session.may(Permission.OWN),
    }
    return render(request, "console/account/settings.html", context | more, status=status)


def _days(text: str, name: str) -> int | None:
    text = text.strip()
    if not text:
        return None
    if not text.isdecimal() or len(text) > 6:
        raise InvalidInput(f"{name} must be a whole number of days, or empty to keep everything; it is {text[:20]!r}.")
    return int(text)


def _receipt_link(row: Erasure) -> str:
    path = reverse("console:deletion", args=[encode_id(Prefix.ERASURE, row.id)])
    return f"{settings.KOLM_PUBLIC_URL}{path}"


_DELETION_EMAIL = """\
The team {name} has been deleted, with everything that belonged to it.

Your signed receipt, which you can open for as long as you have your account:

{link}
"""
