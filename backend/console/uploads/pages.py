"""The page of uploads: a file is dropped, looked at under a mapping of its columns, and stored. The file itself is not
kept: each look sends it again, and what is stored are the rows that a compile would read."""

from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django.conf import settings
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_GET, require_POST

from backend.blobs import get_jsonl
from backend.compiles.models import Upload
from backend.compiles.uploads import deletion
from backend.compiles.uploads.files import MAX_ROWS, purpose_of, read_source, store_source
from backend.compiles.uploads.rows import UploadPurpose
from backend.console.access import ConsoleRequest, page
from backend.console.charts import bars
from backend.console.rows_and_forms import own_row, page_of
from backend.console.uploads.forecasts import forecast_of_upload
from backend.domain.errors import InvalidInput
from backend.domain.ids import Prefix, decode_id, encode_id
from backend.domain.roles import Permission
from backend.domain.source_data.columns import ColumnMapping, cell_text
from backend.domain.source_data.profile import TaskKind
from backend.domain.source_data.reading import records_of
from backend.domain.source_data.source import Source, look_at
from backend.tenants.isolation import tenant_scope

SHOWN_LABELS, SHOWN_COLUMNS, CELL_CHARS = 30, 8, 160


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnChoice:
    """One column of a looked-at file, and what it is taken for."""

    name: str
    role: str


@require_GET
@page(Permission.VIEW)
def uploads(request: ConsoleRequest) -> HttpResponse:
    """All uploads, newest first, and a place to drop a file."""
    return _list(request)


@require_POST
@page(Permission.COMPILE, atomic=False)
def inspect(request: ConsoleRequest) -> HttpResponse:
    """The fragment about the chosen file, asked for when it is chosen and when a column gets another role."""
    try:
        source = _source_of(request)
    except InvalidInput as error:
        return render(request, "console/uploads/_source.html", {"fault": error.message})
    return render(request, "console/uploads/_source.html", source_context(source) | {"roles": ROLES})


@require_POST
@page(Permission.COMPILE, atomic=False)
def store(request: ConsoleRequest) -> HttpResponse:
    """Store the rows of the chosen file; then on to where it was dropped."""
    tenant_id = request.team_session.tenant_id
    try:
        source = _source_of(request)  # seconds of a core, in no transaction
        if not source.rows:
            raise InvalidInput("No row of this file can be used: choose it again to see why.")
        with tenant_scope(tenant_id):
            row = store_source(tenant_id, source, name=request.POST.get("name", "").strip() or _file_name(request))
    except InvalidInput as error:
        with tenant_scope(tenant_id):
            return _list(request, fault=error.message, status=422)
    public_id = encode_id(Prefix.UPLOAD, row.id)
    if request.POST.get("next") == "start" and row.purpose == UploadPurpose.EXAMPLES:
        return redirect(f"{reverse('console:start')}?{urlencode({'upload': public_id})}")
    messages.success(request, f"{row.n_rows:,} rows are stored.")
    return redirect("console:upload", public_id)


@require_GET
@page(Permission.COMPILE)
def upload(request: ConsoleRequest, upload: str) -> HttpResponse:
    """One upload: its labels with their shares, what repeats or contradicts itself, its first rows."""
    row = own_row(Upload, request.team_session.tenant_id, Prefix.UPLOAD, upload)
    source = None if row.purpose == UploadPurpose.RECORDING else stored_source(row)
    newest = _newest_of_its_name(row)
    context: dict[str, Any] = {
        "row": row,
        "id": upload,
        "upload_id": upload,
        "api_path": f"/v1/uploads/{upload}",
        "newest_id": "" if newest.id == row.id else encode_id(Prefix.UPLOAD, newest.id),
    }
    if source is not None and source.profile.kind is TaskKind.LABEL:
        context["forecast"] = forecast_of_upload(row)
    return render(request, "console/uploads/one.html", context | ({} if source is None else source_context(source)))


def _newest_of_its_name(row: Upload) -> Upload:
    same = Upload.objects.of_tenant(row.tenant_id).filter(purpose=row.purpose, name=row.name).exclude(name="")
    return same.order_by("-created_at").first() or row


@require_POST
@page(Permission.COMPILE)
def delete(request: ConsoleRequest, upload: str) -> HttpResponse:
    session = request.team_session
    row = deletion.delete(session.tenant_id, decode_id(Prefix.UPLOAD, upload), actor=session.actor)
    messages.success(request, f"{row.name or 'The data'} is deleted, with its {row.n_rows:,} rows.")
    return redirect("console:uploads")


@require_GET
@page(Permission.COMPILE)
def forecast(request: ConsoleRequest, upload: str) -> HttpResponse:
    """The fragment of what the rows teach, asked for again while a worker measures it."""
    row = own_row(Upload, request.team_session.tenant_id, Prefix.UPLOAD, upload)
    context = {"forecast": forecast_of_upload(row), "upload_id": upload}
    return render(request, "console/start/_forecast.html", context)


def stored_source(row: Upload) -> Source:
    """The rows of an upload, looked at as a file is."""
    rows = get_jsonl(row.tenant_id, row.sha256)
    has_answers = row.purpose == UploadPurpose.EXAMPLES
    columns = {name for each in rows for name in ("group", "split") if each.get(name)} if has_answers else set()
    mapping = ColumnMapping(
        inputs=("input",),
        output="output" if has_answers else None,
        group="group" if "group" in columns else None,
        split="split" if "split" in columns else None,
    )
    names = ("input", "output", "group", "split")
    return look_at(records_of({name: each.get(name) for name in names} for each in rows), mapping=mapping)


def source_context(source: Source) -> dict[str, Any]:
    """The values that templates show of looked-at data."""
    labels, columns = source.profile.labels, _columns(source)
    chart = [(label.name[:60], label.n) for label in labels[:SHOWN_LABELS]]
    return {
        "source": source,
        "profile": source.profile,
        "purpose": purpose_of(source),
        "label_chart": bars(chart, title="Labels", head="Rows") if labels else "",
        "n_more_labels": max(0, len(labels) - SHOWN_LABELS),
        "columns": columns,
        "preview": [
            [cell_text(record.values.get(column.name))[:CELL_CHARS] for column in columns] for record in source.preview
        ],
        "n_more_columns": max(0, len(source.columns) - SHOWN_COLUMNS),
    }


def _columns(source: Source) -> list[ColumnChoice]:
    mapping, roles = source.mapping, {}
    for role, name in (("split", mapping.split), ("group", mapping.group), ("output", mapping.output)):
        roles[name] = role
    roles |= dict.fromkeys(mapping.inputs, "input")
    used_first = sorted(source.columns, key=lambda name: name not in mapping.columns)
    return [ColumnChoice(name=name, role=roles.get(name, "")) for name in used_first[:SHOWN_COLUMNS]]


def _file_name(request: HttpRequest) -> str:
    """The name of the chosen file, as a name of an upload may be."""
    return str(request.FILES["file"].name).rpartition("/")[2].replace("\\", " ")[:100]


ROLES = (
    ("", "not used"),
    ("input", "input"),
    ("output", "answer"),
    ("group", "group"),
    ("split", "train or test"),
)


def _source_of(request: HttpRequest) -> Source:
    """The chosen file under the roles of the form, or under those its columns suggest. Raises InvalidInput."""
    file = request.FILES.get("file")
    if file is None:
        raise InvalidInput("Choose a file first.")
    records = read_source(file.read(), str(file.name))
    names, roles = request.POST.getlist("column"), request.POST.getlist("role")
    if not names or request.POST.get("looked_at") != str(file.name) or len(names) != len(roles):
        return look_at(records)
    by_role: dict[str, list[str]] = {}
    for name, role in zip(names, roles, strict=True):
        by_role.setdefault(role, []).append(name)
    if not by_role.get("input"):
        raise InvalidInput("Choose which column is the input.")
    for role, words in (("output", "answer"), ("group", "group"), ("split", "train or test")):
        if len(by_role.get(role, ())) > 1:
            raise InvalidInput(f"Two columns are the {words}; choose one.")
    single = {role: by_role[role][0] if role in by_role else None for role in ("output", "group", "split")}
    return look_at(records, mapping=ColumnMapping(inputs=tuple(by_role["input"]), **single))


def _list(request: ConsoleRequest, *, fault: str = "", status: int = 200) -> HttpResponse:
    tenant_id = request.team_session.tenant_id
    rows = Upload.objects.of_tenant(tenant_id).order_by("-created_at", "-id")
    shown_page = page_of(rows, request.GET.get("page"))
    context = {
        "rows": [(encode_id(Prefix.UPLOAD, row.id), row) for row in shown_page.object_list],
        "before": f"?page={shown_page.previous_page_number()}" if shown_page.has_previous() else "",
        "after": f"?page={shown_page.next_page_number()}" if shown_page.has_next() else "",
        "fault": fault,
        "may_compile": request.team_session.may(Permission.COMPILE),
        "most_rows": MAX_ROWS,
        "most_mb": settings.KOLM_SOURCE_BODY_BYTES // 1_000_000,
    }
    return render(request, "console/uploads/list.html", context, status=status)
