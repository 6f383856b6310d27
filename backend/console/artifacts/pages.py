"""The artifact pages: what was published, where it comes from, whether it verifies, and taking it back."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from django.conf import settings
from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.safestring import SafeString
from django.views.decorators.http import require_GET, require_POST

from backend.artifacts.models import Artifact, Receipt
from backend.artifacts.revoking import revoke as revoke_artifact
from backend.artifacts.signing import keyring
from backend.blobs import get_blob
from backend.compiles.models import Compile
from backend.console.access import ConsoleRequest, page
from backend.console.artifacts.lineage import names_of, versions_of, with_versions
from backend.console.charts import sparkline
from backend.console.compiles.quality_cards import shown_card
from backend.console.compiles.recipe_figures import fast_paths_of
from backend.console.rows_and_forms import own_row, page_of
from backend.domain.artifact import kolm_verify
from backend.domain.errors import Conflict, InvalidInput
from backend.domain.ids import Prefix, encode_id
from backend.domain.number_words import score
from backend.domain.roles import Permission

VERDICTS = {0: "trusted", 3: "untrusted", 1: "broken", 2: "not_an_artifact"}
MAX_REASON = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactVerdict:
    """The verifier's verdict on the stored bytes."""

    word: str
    keyid: str | None
    reasons: tuple[str, ...]

    @property
    def is_good(self) -> bool:
        return self.word == "trusted"


@require_GET
@page(Permission.VIEW)
def artifacts(request: ConsoleRequest) -> HttpResponse:
    """List artifacts by name, the most lately published first."""
    search = request.GET.get("q", "").strip()[:100]
    shown_page = page_of(names_of(request.team_session.tenant_id, search=search), request.GET.get("page"))
    names = with_versions(request.team_session.tenant_id, list(shown_page.object_list))
    rows = [(row, encode_id(Prefix.ARTIFACT, row.latest.id), _trend(row.k_scores)) for row in names]
    return render(request, "console/artifacts/list.html", {"page_obj": shown_page, "rows": rows, "search": search})


@require_GET
@page(Permission.VIEW)
def artifact(request: ConsoleRequest, artifact: str) -> HttpResponse:
    row = own_row(Artifact, request.team_session.tenant_id, Prefix.ARTIFACT, artifact)
    return render(request, "console/artifacts/one.html", _context(request, row))


@require_POST
@page(Permission.VIEW)
def verify(request: ConsoleRequest, artifact: str) -> HttpResponse:
    """Changes nothing, so the answer is the page itself (or its fragment), with the verdict in it."""
    row = own_row(Artifact, request.team_session.tenant_id, Prefix.ARTIFACT, artifact)
    verification = kolm_verify.verify(get_blob(row.tenant_id, row.sha256), keyring())
    verdict = ArtifactVerdict(
        word=VERDICTS[verification.exit_code], keyid=verification.keyid, reasons=tuple(verification.reasons)
    )
    if getattr(request, "htmx", None):
        return render(request, "console/artifacts/verdict.html", {"verdict": verdict})
    return render(request, "console/artifacts/one.html", _context(request, row) | {"verdict": verdict})


@require_GET
@page(Permission.VIEW)
def download(request: ConsoleRequest, artifact: str) -> HttpResponse:
    """The `.kolm` itself."""
    row = own_row(Artifact, request.team_session.tenant_id, Prefix.ARTIFACT, artifact)
    if row.revoked_at is not None and request.GET.get("revoked") != "true":
        raise Conflict(
            f"{row.name} {row.version} was revoked; its page has a link to the revoked file.", code="artifact_revoked"
        )
    response = HttpResponse(get_blob(row.tenant_id, row.sha256), content_type="application/vnd.kolm")
    response["Content-Disposition"] = f'attachment; filename="{row.name}-{row.version}.kolm"'
    response["ETag"] = f'"{row.sha256}"'
    response["Cache-Control"] = "private, immutable, max-age=31536000"
    return response


@require_POST
@page(Permission.RELEASE)
def revoke(request: ConsoleRequest, artifact: str) -> HttpResponse:
    """Take an artifact back: runs are refused from now on; who has the file keeps it, and is told by webhook."""
    session = request.team_session
    row = own_row(Artifact, session.tenant_id, Prefix.ARTIFACT, artifact)
    reason = request.POST.get("reason", "").strip()
    if not reason or len(reason) > MAX_REASON:
        raise InvalidInput(f"Say why the artifact is revoked, in up to {MAX_REASON} characters: others will read it.")
    revoke_artifact(session.tenant_id, row.id, reason=reason, actor=session.actor)
    messages.success(request, f"{row.name} {row.version} is revoked.")
    return redirect(reverse("console:artifact", args=[artifact]))


def _context(request: ConsoleRequest, row: Artifact) -> dict[str, Any]:
    tenant_id = row.tenant_id
    versions = versions_of(tenant_id, row.name)
    compile = Compile.objects.of_tenant(tenant_id).filter(id=row.compile_id).first()
    receipts = list(Receipt.objects.of_tenant(tenant_id).filter(compile_id=row.compile_id).order_by("seq"))
    evaluation = row.evaluation or (compile.evaluation if compile is not None else None) or {}
    return {
        "artifact": row,
        "public_id": encode_id(Prefix.ARTIFACT, row.id),
        "compile": compile,
        "compile_id": encode_id(Prefix.COMPILE, row.compile_id),
        "base_compile_id": _base_of(compile),
        "versions": [(encode_id(Prefix.ARTIFACT, version.artifact.id), version) for version in versions],
        "previous": next((v for v in versions if v.artifact.version == row.version - 1), None),
        "this_version": next((v for v in versions if v.artifact.id == row.id), None),
        "trend": _trend([v.artifact.k_score_ppm / 1e6 for v in reversed(versions)]),
        "receipts": [(encode_id(Prefix.RECEIPT, receipt.id), receipt) for receipt in receipts],
        "evaluation": evaluation,
        "card": shown_card(evaluation),
        "fast": None if compile is None else fast_paths_of(compile, evaluation),
        "gate": (compile.gate if compile is not None else None) or {},
        **_lines(row),
        "may_release": request.team_session.may(Permission.RELEASE),
        "may_run": request.team_session.may(Permission.COMPILE),
        "max_reason": MAX_REASON,
    }


def _base_of(compile: Compile | None) -> str | None:
    if compile is None or compile.ablation_of is None:
        return None
    return encode_id(Prefix.COMPILE, compile.ablation_of)


def _lines(row: Artifact) -> dict[str, str]:
    """Return the lines that one types on one's own machine, and the same pages of the API."""
    file, public_id = f"{row.name}-{row.version}.kolm", encode_id(Prefix.ARTIFACT, row.id)
    return {
        "trust_line": f"kolm trust {settings.KOLM_PUBLIC_URL}",
        "pull_line": f"kolm pull {public_id} --out {file}",
        "verify_line": f"kolm verify {file}",
        "run_line": f'kolm run {file} "a text"',
        "versions_path": f"/v1/artifacts?name={quote(row.name)}",
        "receipts_path": f"/v1/compiles/{encode_id(Prefix.COMPILE, row.compile_id)}/receipts",
    }


def _trend(k_scores: Sequence[float]) -> SafeString:
    """The K-scores of a name's versions, oldest first."""
    return sparkline(list(k_scores), title="K-score by version", write=lambda value: score(round(value * 1_000_000)))
