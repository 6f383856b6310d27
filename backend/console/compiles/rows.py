"""Finding a compile by what stands in the address, and walking lists of rows by cursor."""

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from django.db import models

from backend.compiles.models import Compile, StepRun
from backend.console.access import ConsoleRequest
from backend.domain.errors import NotFound
from backend.domain.ids import Prefix, decode_id, encode_id
from backend.domain.planning.step_outputs import StepOutput

_M = TypeVar("_M", bound=models.Model)
_Out = TypeVar("_Out", bound=StepOutput)


def find_compile(request: ConsoleRequest, public_id: str) -> Compile:
    """The compile of this session's team. Raises NotFound, for another tenant's too."""
    compile_id = decode_id(Prefix.COMPILE, public_id)
    row = Compile.objects.of_tenant(request.team_session.tenant_id).filter(id=compile_id).first()
    if row is None:
        raise NotFound(f"There is no compile {public_id[:60]!r} in {request.team_session.tenant_name}.")
    return row


def output_of(kind: type[_Out], steps: Iterable[StepRun]) -> _Out | None:
    """Return the output of the step of this kind; None before it has one."""
    output = next((step.output for step in steps if step.name == kind.STEP), None)
    return kind.from_json(output) if output else None


def page_of(
    rows: models.QuerySet[_M], cursor: str, *, prefix: Prefix, size: int, newest_first: bool = True
) -> tuple[Sequence[_M], dict[str, Any]]:
    """One page in the order of the ids, which is that of their birth, and what the pager tag wants. A cursor is the id
    of the last row seen, with `-` before it to walk back; one that is no id begins at the beginning."""
    is_back = cursor.startswith("-")
    downwards = newest_first != is_back
    try:
        edge = decode_id(prefix, cursor.lstrip("-")) if cursor else None
    except NotFound:
        edge, is_back, downwards = None, False, newest_first
    if edge is not None:
        rows = rows.filter(**{"id__lt" if downwards else "id__gt": edge})
    page_rows = list(rows.order_by("-id" if downwards else "id")[: size + 1])
    has_beyond = len(page_rows) > size
    page_rows = page_rows[:size]
    if is_back:
        page_rows.reverse()
    has_before, has_after = (has_beyond, True) if is_back else (edge is not None, has_beyond)
    if not page_rows:
        return [], {"previous": "", "next": ""}
    first, last = encode_id(prefix, page_rows[0].pk), encode_id(prefix, page_rows[-1].pk)
    return page_rows, {"previous": f"-{first}" if has_before else "", "next": last if has_after else ""}
