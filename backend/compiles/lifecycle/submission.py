"""Taking a spec in: checked to the last row, estimated, held against its budget, queued."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.conf import settings
from django.utils import timezone

from backend.compiles import leases
from backend.compiles.events import append_event
from backend.compiles.lifecycle.concurrency import check_room
from backend.compiles.lifecycle.written_before import written_before
from backend.compiles.models import Compile, StepRun, TeacherKey
from backend.compiles.notices import notify_status
from backend.compiles.uploads.deletion import hold_off_deletion
from backend.compiles.uploads.inputs import keep_salt, load_captures, load_gold, split
from backend.compiles.uploads.rows import UploadPurpose, find_upload, with_upload_ids
from backend.domain.canonical import sha256_of
from backend.domain.errors import InvalidSpec, Problem
from backend.domain.ids import Prefix, decode_id
from backend.domain.lifecycle import STEPS, CompileStatus
from backend.domain.money.pricing import price_book
from backend.domain.planning.estimates import Estimate, check_budget, estimate
from backend.domain.planning.gate_reach import check_reachable
from backend.domain.spec.defaults import judge_of
from backend.domain.spec.gold import GoldSplit, more_heldout
from backend.domain.spec.parsing import Example, Spec, canonical_spec, parse_spec
from backend.domain.spec.reward import RewardVerifier
from backend.usage import holds
from backend.usage.subjects import Subject


def check(tenant_id: UUID, document: object) -> tuple[Spec, Estimate]:
    """The spec and what it would cost. Raises InvalidSpec, also for uploads and keys that are not the tenant's."""
    spec = parse_spec(with_upload_ids(tenant_id, document))
    check_reachable(spec)
    material = load_material(tenant_id, spec)
    gold = material.gold
    n_heldout = len(gold.heldout)
    if n_heldout < spec.gate.min_heldout:
        message = (
            f"{n_heldout} examples are held out and the gate needs {spec.gate.min_heldout}: "
            f"{more_heldout([*gold.train, *gold.heldout])}."
        )
        raise _wrong("/examples", "too_few_heldout", message)
    check_teacher(tenant_id, spec)
    check_embedder(spec)
    return spec, estimate_material(spec, material)


@dataclass(frozen=True, slots=True, kw_only=True)
class Material:
    """The data of a spec: its gold, split, its captures, and what its teacher `wrote` for the task before."""

    gold: GoldSplit[Example]
    captures: list[str]
    wrote: list[str]


def load_material(tenant_id: UUID, spec: Spec) -> Material:
    """Raises InvalidSpec, also for uploads that are not the tenant's."""
    gold = split(tenant_id, spec, load_gold(tenant_id, spec))
    return Material(gold=gold, captures=load_captures(tenant_id, spec), wrote=written_before(tenant_id, spec))


def estimate_material(spec: Spec, material: Material) -> Estimate:
    """Estimate a spec with all of its data."""
    gold, captures = material.gold, material.captures
    return estimate_now(
        spec,
        n_captures=len(captures),
        n_gold_train=len(gold.train),
        n_heldout=len(gold.heldout),
        shown_inputs=[*captures, *(example.input for example in (*gold.train, *gold.heldout))],
        shown_outputs=[example.output for example in (*gold.train, *gold.heldout)],
        written=material.wrote,
    )


def estimate_now(
    spec: Spec,
    *,
    shown_inputs: Sequence[str] = (),
    shown_outputs: Sequence[str] = (),
    written: Sequence[str] = (),
    **sizes: int,
) -> Estimate:
    """Estimate with the prices in force here and now: the operator's before the vendors'. The compile keeps them."""
    return estimate(
        spec,
        book=price_book(timezone.now()),
        operator=settings.KOLM_TEACHER_PRICES,
        today=timezone.now().date(),
        shown_inputs=shown_inputs,
        shown_outputs=shown_outputs,
        written=written,
        **sizes,
    )


def submit(tenant_id: UUID, document: object, *, api_key_id: UUID | None) -> Compile:
    """Queue a compile in the caller's transaction; a worker is woken on commit. Raises what `check` raises, and
    InvalidSpec for a budget that cannot be enough."""
    hold_off_deletion(tenant_id)
    spec, expected = check(tenant_id, document)
    check_budget(expected, spec.budget.microusd)
    return queue(tenant_id, spec, expected, budget_microusd=spec.budget.microusd, api_key_id=api_key_id)


def queue(
    tenant_id: UUID, spec: Spec, expected: Estimate, *, budget_microusd: int, api_key_id: UUID | None, **fields: Any
) -> Compile:
    """Write a compile that was checked, its steps, its first event, its lease and the hold of its budget, in the
    caller's transaction. `fields` are further columns of the row. Raises PaymentRequired where the spend cap, a budget
    or the plan's number of compiles has no room for it."""
    check_room(tenant_id)
    keep_salt(tenant_id, spec.name)
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
        budget_microusd=budget_microusd,
        **fields,
    )
    per_step: dict[str, Any] = {row["step"]: row for row in expected.to_json()["steps"]}
    StepRun.objects.bulk_create(
        StepRun(tenant_id=tenant_id, compile=compile, name=name, position=i, estimate=per_step.get(name, {}))
        for i, name in enumerate(STEPS)
    )
    append_event(tenant_id, compile.id, "compile.status", {"status": CompileStatus.QUEUED.value})
    notify_status(compile, CompileStatus.QUEUED)
    leases.create_lease(tenant_id, compile.id)
    subject = Subject(name=spec.name, tags=spec.tags)
    to_hold = _to_hold(spec, expected, budget_microusd)
    holds.hold(tenant_id, compile.id, to_hold, api_key_id=api_key_id, subject=subject)
    return compile


def _to_hold(spec: Spec, expected: Estimate, budget_microusd: int) -> int:
    """The budget; where the customer's own key pays the teacher, what is ours to bill of it. An estimate has no part
    for a judge of drafts, so that one that we bill may need any of the budget."""
    judge = judge_of(spec)
    judge_is_ours = judge is not None and judge.api_key is None
    if spec.teacher.api_key is None or judge_is_ours or expected.platform_high is None:
        return budget_microusd
    return min(budget_microusd, expected.platform_high)


def check_teacher(tenant_id: UUID, spec: Spec) -> None:
    """Check what a worker would find out only when it calls: the recording, and keys and addresses, those of a reward
    and of a judge of drafts among them."""
    teacher = spec.teacher
    if teacher.provider == "grammar" and not settings.KOLM_GRAMMAR_URL:
        message = "this installation runs no grammar teacher; take an openai_compatible one, or a replay"
        raise _wrong("/teacher/provider", "not_on_this_deployment", message)
    if teacher.recording is not None:
        find_upload(tenant_id, teacher.recording, UploadPurpose.RECORDING, pointer="/teacher/recording")
    _check_endpoint(tenant_id, teacher.base_url, teacher.api_key, "/teacher")
    for i, verifier in enumerate(spec.verifiers):
        if isinstance(verifier, RewardVerifier):
            _check_endpoint(tenant_id, verifier.base_url, verifier.api_key, f"/verifiers/{i}")
    judge = spec.draft_cache.judge
    if judge is not None:
        _check_endpoint(tenant_id, judge.base_url, judge.api_key, "/draft_cache/judge")


def _check_endpoint(tenant_id: UUID, base_url: str | None, api_key: str | None, pointer: str) -> None:
    if base_url is not None:
        _check_address(base_url, pointer)
    if api_key is not None:
        key_id = decode_id(Prefix.TEACHER_KEY, api_key)
        if not TeacherKey.objects.filter(tenant_id=tenant_id, id=key_id).exists():
            message = f"there is no teacher key {api_key}; store one with POST /v1/teacher_keys"
            raise _wrong(f"{pointer}/api_key", "unknown_teacher_key", message)


def check_embedder(spec: Spec) -> None:
    """Refuse an embedder that this installation does not hold."""
    held = settings.KOLM_EMBEDDERS
    if spec.embedder is not None and spec.embedder not in held:
        message = (
            f"this installation has no embedder {spec.embedder}; it has {', '.join(held)}. Leave it out for the first"
        )
        raise _wrong("/embedder", "unknown_embedder", message)


def _check_address(base_url: str, pointer: str) -> None:
    """Check an address by its text alone: a transaction is open and must not wait for DNS. What a name resolves to is
    judged by the worker on every connection."""
    from backend.outbound import OutboundRefused, check_url  # brings httpx, which a web process may never need

    try:
        check_url(base_url, allowed_origins=settings.KOLM_ALLOW_PRIVATE_TEACHERS)
    except OutboundRefused as refused:
        raise _wrong(f"{pointer}/base_url", refused.code, refused.message) from None


def _wrong(pointer: str, code: str, message: str) -> InvalidSpec:
    problem = Problem(pointer=pointer, message=message, code=code)
    return InvalidSpec(f"The spec is not valid: {pointer}: {message}", problems=(problem,))
