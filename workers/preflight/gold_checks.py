"""The held-out gold of a spec, held to the spec's own checks: some of them run in the sandbox, which workers have."""

from uuid import UUID

from backend.compiles.inputs import load_gold, split
from backend.domain.planning.preflight.check_lines import JudgedGold, check_lines
from backend.domain.planning.preflight.lines import PreflightLine
from backend.domain.spec.parsing import LabelOutput, Spec
from backend.tenants.isolation import tenant_scope
from workers.scoring.answer_checks import failed_checks


def gold_lines(tenant_id: UUID, spec: Spec) -> list[PreflightLine]:
    """The lines about gold that fails checks; none where all of it passes. Outside a transaction. Raises InvalidSpec
    for gold that cannot be read, SandboxUnavailable as `failed_checks`."""
    output = spec.output
    if isinstance(output, LabelOutput) or not output.checks:
        return []
    with tenant_scope(tenant_id):
        heldout = split(tenant_id, spec, load_gold(tenant_id, spec)).heldout
    failed = failed_checks(output, [(example.input, example.output) for example in heldout])
    rows = zip(heldout, failed, strict=True)
    return check_lines(spec, [JudgedGold(answer=example.output, failed=tuple(names)) for example, names in rows])
