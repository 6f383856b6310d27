"""Issuing receipts: one signed, chained statement a step, in the transaction that finishes the step."""

from datetime import UTC
from typing import Any

from backend.artifacts.models import Receipt
from backend.artifacts.signing import signing_key
from backend.compiles.endpoint_lessons import lessons_of, lessons_of_batches
from backend.compiles.models import Compile, StepRun, TeacherBatch, TeacherCall
from backend.compiles.states import ANSWERED_STATES, DELEGATE_CALLS, REWARD_CALLS, CallState
from backend.domain.artifact.receipts import sign_envelope, step_statement
from backend.domain.canonical import canonical_json, sha256_hex
from backend.domain.ids import Prefix, encode_id
from backend.domain.money.teacher_prices import PRICE_KEYS
from backend.domain.spec.defaults import dialect_of
from backend.domain.spec.parsing import judged_by, read_stored_spec, reward_of, rewarded_by

MADE_STATES = ANSWERED_STATES | {CallState.FAILED, CallState.WASTED}  # a call that went out and has ended


def issue_receipt(
    compile: Compile, step: StepRun, *, inputs: dict[str, str], outputs: dict[str, str], facts: dict[str, Any]
) -> Receipt:
    """Sign the step's receipt and append it to the compile's chain. The caller holds the compile's lock."""
    last = Receipt.objects.filter(tenant_id=compile.tenant_id, compile_id=compile.id).order_by("-seq").first()
    statement = step_statement(
        compile=encode_id(Prefix.COMPILE, compile.id),
        step=step.name,
        seq=0 if last is None else last.seq + 1,
        prev="" if last is None else last.payload_sha256,
        inputs=inputs,
        outputs=outputs,
        teacher=_teacher_usage(compile, step),
        cost_microusd=step.spent_microusd,
        waste_microusd=step.waste_microusd,
        started_at=_time(step.started_at),
        ended_at=_time(step.ended_at),
        facts=as_integers(facts),
    )
    payload = canonical_json(statement)
    return Receipt.objects.create(
        tenant_id=compile.tenant_id,
        compile_id=compile.id,
        seq=statement["predicate"]["seq"],
        step=step.name,
        envelope=sign_envelope(payload, signing_key()),
        payload_sha256=sha256_hex(payload),
    )


def as_integers(value: Any) -> Any:
    """The value with every float as a `_ppm` integer: nothing that is signed holds a float."""
    if isinstance(value, dict):
        return {(f"{key}_ppm" if isinstance(item, float) else key): as_integers(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_integers(item) for item in value]
    return round(value * 1_000_000) if isinstance(value, float) else value


def _teacher_usage(compile: Compile, step: StepRun) -> dict[str, Any]:
    calls = TeacherCall.objects.filter(tenant_id=compile.tenant_id, compile=compile, step=step.name)
    made = [call for call in calls if call.state in MADE_STATES]
    spoken = _dialect(compile, [call for call in made if not call.key.startswith((REWARD_CALLS, DELEGATE_CALLS))])
    rewarded = _dialect(compile, [call for call in made if call.key.startswith(REWARD_CALLS)], is_reward=True)
    judged = _dialect(compile, [call for call in made if call.key.startswith(DELEGATE_CALLS)], is_judge=True)
    return {
        "models": sorted({call.model for call in made}),
        "requests": len(made),
        "input_tokens": sum(call.input_tokens for call in made),
        "output_tokens": sum(call.output_tokens for call in made),
        "thought_tokens": sum(call.thought_tokens for call in made),
        "wasted_requests": sum(call.state == CallState.WASTED for call in made),
        "prices": _prices(compile, {call.price_version for call in made}),
        **spoken,
        **({"reward": rewarded} if rewarded else {}),
        **({"judge": judged} if judged else {}),
        **_batches(compile, step),
    }


def _batches(compile: Compile, step: StepRun) -> dict[str, Any]:
    """The batches that a vendor had of the step's calls, by its own ids; nothing where it was asked live."""
    rows = TeacherBatch.objects.filter(tenant_id=compile.tenant_id, compile_id=compile.id, step=step.name)
    batches = [
        {"id": row.vendor_id, "status": row.vendor_status, "requests": row.n_requests, "answered": row.n_answered}
        for row in rows.order_by("created_at")
    ]
    return {"mode": "batch", "batches": batches} if batches else {}


def _dialect(
    compile: Compile, made: list[TeacherCall], *, is_reward: bool = False, is_judge: bool = False
) -> dict[str, Any]:
    """Give the dialect in which the teacher, the model that gives the rewards, or the spec's own judge of drafts was
    spoken to, and what its endpoint had refused by then, by model; nothing of a built-in one, nor without a call."""
    spec = read_stored_spec(compile.spec)
    asked = reward_of(spec)
    teacher = (rewarded_by(spec) if is_reward else judged_by(spec) if is_judge else spec).teacher
    if teacher.base_url is None or not made:
        return {}
    models = sorted({call.model for call in made})
    learnt = {model: lessons_of(compile.tenant_id, teacher.base_url, model) for model in models}
    if not (is_reward or is_judge):  # lessons on trial are not the team's yet
        for model in models:
            of_batches = lessons_of_batches(compile.tenant_id, compile.id, model)
            learnt[model] = tuple(dict.fromkeys((*learnt[model], *of_batches)))
    is_number = is_reward and asked is not None and not asked.is_chat
    return {
        "dialect": asked.api if asked is not None and is_number else dialect_of(teacher).name,
        "learnt": {model: [lesson.sentence for lesson in lessons] for model, lessons in learnt.items() if lessons},
    }


def _prices(compile: Compile, versions: set[str]) -> list[dict[str, Any]]:
    """The rows that the step's calls were billed by, with dates and sources, as the compile's estimate has them; of the
    price book, whose versions are published, the version."""
    kept = [compile.estimate.get(key) for key in PRICE_KEYS]
    rows = {row["version"]: row for row in kept if row is not None and row["origin"] != "book"}
    return [rows.get(version, {"version": version}) for version in sorted(versions)]


def _time(at: Any) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ") if at is not None else ""
