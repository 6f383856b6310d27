"""The held-out gold of a spec, held to the spec's own checks: some of them run in the sandbox, which workers have."""

from collections.abc import Sequence
from uuid import UUID

from backend.compiles.uploads.inputs import load_gold, split
from backend.domain.answers.json_values import answer_text, compared_texts, parse_answer
from backend.domain.planning.preflight.check_lines import JudgedGold, check_lines
from backend.domain.planning.preflight.lines import PreflightLine
from backend.domain.spec.inputs import Example
from backend.domain.spec.outputs import JsonOutput, TextOutput
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
    failed = _failures(output, heldout)
    rows = zip(heldout, failed, strict=True)
    return check_lines(spec, [JudgedGold(answer=example.output, failed=tuple(names)) for example, names in rows])


def _failures(output: JsonOutput | TextOutput, heldout: Sequence[Example]) -> list[list[str]]:
    """The names of the checks that each answer fails, in gold's own spelling and in the one that marks compare."""
    own = failed_checks(output, [(example.input, example.output) for example in heldout])
    if not isinstance(output, JsonOutput) or not any(own):
        return [list(names) for names in own]
    compared = failed_checks(
        output, [(example.input, _compared_spelling(output, example.output)) for example in heldout]
    )
    return [[name for name in names if name in still] for names, still in zip(own, compared, strict=True)]


def _compared_spelling(output: JsonOutput, answer: str) -> str:
    return answer_text(compared_texts(parse_answer(answer)), output.answer_schema)
