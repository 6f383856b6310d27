"""The whole preflight of a spec, as the API and the console ask for it: what rows say, then runners, then the teacher
and the other models, which are not asked where anything before them has failed."""

from uuid import UUID

from backend.domain.planning.estimates import Estimate
from backend.domain.planning.preflight.lines import LineStatus, Preflight, PreflightLine, in_order
from backend.domain.planning.preflight.teacher_lines import unasked_lines
from backend.domain.spec.parsing import Spec
from backend.preflight.runner_lines import check_runners
from backend.preflight.settings_lines import check_settings
from backend.preflight.teacher_checks import ask_models
from backend.tenants.isolation import tenant_scope

FIRST = "fix the failed lines first"


def preflight_of(tenant_id: UUID, spec: Spec) -> tuple[Preflight, Estimate | None]:
    """The list, and the estimate where the spec has a price. Outside a transaction: runners and workers are waited
    for, 55 s at most. Raises InvalidSpec for data that cannot be read."""
    with tenant_scope(tenant_id):
        settled = check_settings(tenant_id, spec)
    lines = [*settled.lines, *check_runners(tenant_id, spec, extracts=settled.extracts)]
    lines += unasked_lines(spec, FIRST) if has_failed(lines) else ask_models(tenant_id, spec)
    return in_order(lines), settled.estimate


def has_failed(lines: list[PreflightLine]) -> bool:
    return any(line.status is LineStatus.FAILED for line in lines)
