"""Taking a spec in: checked to the last row, estimated, held against its budget, queued."""

from typing import Any
from uuid import UUID

from backend.compiles import leases
from backend.compiles.events import append_event
from backend.compiles.inputs import load_captures, load_gold, split
from backend.compiles.models import Compile, StepRun, TeacherKey
from backend.domain.canonical import sha256_of
from backend.domain.errors import InvalidSpec, Problem
from backend.domain.estimates import Estimate, check_budget, estimate
from backend.domain.ids import Prefix, decode_id
from backend.domain.lifecycle import STEPS, CompileStatus
from backend.domain.spec import Spec, canonical_spec, parse_spec


def check(tenant_id: UUID, document: object) -> tuple[Spec, Estimate]:
    """The spec and what it would cost. Raises InvalidSpec, NotFound for uploads and keys that are not the tenant's."""
    spec = parse_spec(document)
    gold = split(tenant_id, spec, load_gold(tenant_id, spec))
    n_captures = len(load_captures(tenant_id, spec))
    if len(gold.heldout) < spec.gate.min_heldout:
        raise InvalidSpec(
            "The spec has too few held-out examples for its gate.",
            problems=(
                Problem(
                    pointer="/examples",
                    code="too_few_heldout",
                    message=f"{len(gold.heldout)} examples are held out and the gate needs {spec.gate.min_heldout}: "
                    "add gold examples, raise examples.holdout, or lower gate.min_heldout.",
                ),
            ),
        )
    _check_teacher_key(tenant_id, spec)
    return spec, estimate(spec, n_captures=n_captures, n_gold_train=len(gold.train), n_heldout=len(gold.heldout))


def submit(tenant_id: UUID, document: object, *, api_key_id: UUID | None) -> Compile:
    """Queue a compile in the caller's transaction; its hint goes out on commit. Raises what `check` raises, and
    InvalidSpec for a budget that cannot be enough."""
    spec, expected = check(tenant_id, document)
    check_budget(expected, spec.budget.microusd)
    plain = canonical_spec(spec)
    compile = Compile.objects.create(
        tenant_id=tenant_id,
        name=spec.name,
        family=spec.family,
        spec=plain,
        spec_sha256=sha256_of(plain),
        status=CompileStatus.QUEUED,
        api_key_id=api_key_id,
        estimate=expected.to_json(),
        budget_microusd=spec.budget.microusd,
    )
    per_step: dict[str, Any] = {row["step"]: row for row in expected.to_json()["steps"]}
    StepRun.objects.bulk_create(
        StepRun(tenant_id=tenant_id, compile=compile, name=name, position=i, estimate=per_step.get(name, {}))
        for i, name in enumerate(STEPS)
    )
    append_event(tenant_id, compile.id, "compile.status", {"status": CompileStatus.QUEUED.value})
    leases.create_lease(tenant_id, compile.id)
    return compile


def _check_teacher_key(tenant_id: UUID, spec: Spec) -> None:
    if spec.teacher.api_key is None:
        return
    key_id = decode_id(Prefix.TEACHER_KEY, spec.teacher.api_key)
    if not TeacherKey.objects.filter(tenant_id=tenant_id, id=key_id).exists():
        raise InvalidSpec(
            "The spec names a teacher key that is not yours.",
            problems=(
                Problem(
                    pointer="/teacher/api_key",
                    code="unknown_teacher_key",
                    message=f"There is no teacher key {spec.teacher.api_key}. Store one with POST /v1/teacher_keys.",
                ),
            ),
        )
