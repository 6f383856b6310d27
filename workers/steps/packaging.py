"""Packaging: everything that was made, in one signed `.kolm`; published in the same transaction that ends the
compile."""

from dataclasses import dataclass
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from django.conf import settings

from backend.artifacts.models import Receipt
from backend.artifacts.publishing import publish
from backend.artifacts.receipting import as_integers
from backend.artifacts.signing import keyring, raw_of, signing_key, utc_text, valid_from
from backend.blobs import get_blob, get_json, get_jsonl, put_blob
from backend.compiles.events import append_event
from backend.compiles.models import Compile, StepRun
from backend.domain.artifact import kolm_verify
from backend.domain.artifact.building import build_kolm
from backend.domain.artifact.receipts import keyid, payload_of, sign_envelope
from backend.domain.canonical import canonical_json, sha256_hex, sha256_of
from backend.domain.errors import CustomerError, OurError
from backend.domain.ids import Prefix, encode_id
from backend.domain.jobs.causal_jobs import DistillCausalResult
from backend.domain.jobs.runner_jobs import DistillResult
from backend.domain.jobs.span_jobs import DistillSpansResult
from backend.domain.lifecycle import CompileStatus, StepName
from backend.domain.planning.step_outputs import EvaluationOut, GateOut, LabelingOut, PackagingOut, SlicingOut
from backend.domain.recipes.pack import RecipePack
from backend.domain.recipes.registry.contributed import structures_of
from backend.domain.recipes.registry.structural import Structure
from backend.domain.rules.rule_list import EMPTY as NO_RULES
from backend.domain.spec.parsing import LabelOutput, canonical_spec, label_names
from backend.domain.spec.task_prompt import prompt_json
from backend.registry.contributing import contribute
from workers.gap.k_sampling import k_sampling
from workers.step.durable import CompileRun
from workers.step.result import StepDone, finish_step
from workers.step.teacher_profile import CARD_NOTES
from workers.training.extraction import saved_plan
from workers.training.measurement import Measurement
from workers.training.trial_jobs import Trained
from workers.training.trials import ChosenTrial, chosen_trial

# of a trial: what differs when the same spec is compiled again; its receipt has it
_MEASURED = frozenset({"k_score_ppm", "cost_microusd", "evals"})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    """The parts that are read, and mined, before a row is locked: most lie in blobs and are large."""

    trained: Trained
    base: dict[str, str]
    adapter: bytes
    recipes: bytes
    rules: bytes
    k_score: Any
    gate: Any
    predictions: dict[str, Any]
    abstain_ppm: int | None
    structures: list[Structure]


def run_packaging(run: CompileRun) -> StepDone:
    parts = _read_parts(run, chosen_trial(run))
    key = signing_key()
    with run.transaction() as fenced:
        members = _members(run, fenced.compile, parts) | _receipts(fenced.compile, key)
        fields = _manifest_fields(run, fenced.compile, parts.base, key)
    data = build_kolm(members, manifest_fields=fields, key=key)
    _check_trusted(data)
    _check_size(len(data))
    digest = put_blob(run.tenant_id, data)
    with run.transaction() as fenced:
        artifact = publish(fenced.compile, data, digest)
        public_id = encode_id(Prefix.ARTIFACT, artifact.id)
        done = StepDone(
            inputs={"adapter": parts.trained.adapter_sha256},
            output=PackagingOut(kolm=digest, artifact=public_id, version=artifact.version, size_bytes=len(data)),
            ends=CompileStatus.SUCCEEDED,
        )
        append_event(
            run.tenant_id,
            run.compile_id,
            "artifact.published",
            {"artifact": public_id, "sha256": digest, "size_bytes": len(data)},
        )
        if parts.structures:
            contribute(run.tenant_id, parts.structures, submitted_at=fenced.compile.created_at)
        finish_step(run, fenced, StepName.PACKAGING, done)
    return done


def _read_parts(run: CompileRun, chosen: ChosenTrial) -> _Parts:
    trained = chosen.trained
    measured = chosen.measured
    gate = run.output(GateOut)
    labeling = run.output(LabelingOut)
    recipes, rules = _fast_paths(run, measured, labeling)
    return _Parts(
        trained=trained,
        base=_base_of(run, trained),
        adapter=get_blob(run.tenant_id, trained.adapter_sha256),
        recipes=recipes,
        rules=rules,
        k_score=get_json(run.tenant_id, gate.k_score_sha256),
        gate=get_json(run.tenant_id, gate.gate_sha256),
        predictions=_predictions(measured),
        abstain_ppm=None if measured.threshold is None else measured.threshold.ppm,
        structures=_structures(run, labeling),
    )


def _members(run: CompileRun, compile: Compile, parts: _Parts) -> dict[str, bytes]:
    """The files of the artifact, but for the receipts."""
    trained = parts.trained
    of_kind = _of_kind(run, trained, parts.abstain_ppm)
    evaluation = dict(compile.evaluation or {})
    card = evaluation.pop("card", None)  # none of a gate that the release before decided
    steps = {step.name: step for step in StepRun.objects.filter(tenant_id=run.tenant_id, compile=compile)}
    values: dict[str, Any] = {
        "spec.json": canonical_spec(run.spec),
        "adapter_config.json": trained.adapter_config,
        "evals.json": evaluation | parts.predictions,
        **({} if card is None else {"card.json": card}),
        "k_score.json": parts.k_score,
        "gate.json": parts.gate,
        "training_stats.json": as_integers(_training_stats(run, compile, trained)),
        "provenance.json": _provenance(run, steps, parts.base),
    }
    members = {path: canonical_json(value) for path, value in (values | of_kind).items()}
    return members | {
        "recipes.json": parts.recipes,
        "rules.json": parts.rules,
        "adapter.safetensors": parts.adapter,
    }


def _receipts(compile: Compile, key: Ed25519PrivateKey) -> dict[str, bytes]:
    """The chain, under the one key that signs the file. Steps that ended before a rotation have the key of before,
    which may be retired or revoked by now: their statements, which are what is chained, are signed once more."""
    own, envelopes = keyid(raw_of(key)), {}
    for receipt in Receipt.objects.filter(tenant_id=compile.tenant_id, compile_id=compile.id).order_by("seq"):
        signers = [signature["keyid"] for signature in receipt.envelope["signatures"]]
        envelope = receipt.envelope if signers == [own] else sign_envelope(payload_of(receipt.envelope), key)
        envelopes[f"receipts/{receipt.seq:02d}-{receipt.step}.dsse.json"] = canonical_json(envelope)
    return envelopes


def _check_trusted(data: bytes) -> None:
    """A process whose key was retired or revoked behind its back publishes nothing that customers would refuse."""
    verdict = kolm_verify.verify(data, keyring())
    if verdict.exit_code != 0:
        raise OurError(
            f"This installation's own keyring does not trust what it signed: {'; '.join(verdict.reasons)}",
            code="signing_key_untrusted",
        )


def _check_size(n_bytes: int) -> None:
    """No server would load what is larger than this installation's limit."""
    if n_bytes > settings.KOLM_MAX_BLOB_BYTES:
        raise CustomerError(
            f"The artifact has {n_bytes:,} bytes and this installation keeps at most {settings.KOLM_MAX_BLOB_BYTES:,}; "
            "set a lower train rank in a new compile, or ask the operator to raise KOLM_MAX_BLOB_BYTES and resume.",
            code="artifact_too_large",
        )


def _structures(run: CompileRun, labeling: LabelingOut) -> list[Structure]:
    """The structures of the task's answers that the registry gets; nothing where the spec does not say so."""
    if run.spec.recipes.registry != "contribute" or not labeling.observations:
        return []
    return structures_of(row["output"] for row in get_jsonl(run.tenant_id, labeling.observations))


def _fast_paths(run: CompileRun, measured: Measurement, labeling: LabelingOut) -> tuple[bytes, bytes]:
    """recipes.json and rules.json; empty ones where nothing was made or kept."""
    pack = measured.pack_sha256
    rules = measured.shipped_rules(labeling)
    return (
        get_blob(run.tenant_id, pack) if pack else RecipePack.empty().to_bytes(),
        get_blob(run.tenant_id, rules) if rules else NO_RULES.to_bytes(),
    )


def _of_kind(run: CompileRun, trained: Trained, abstain_ppm: int | None) -> dict[str, Any]:
    """The files that only label tasks have, and those that only adapters of one kind of base have."""
    files: dict[str, Any] = {}
    if isinstance(run.spec.output, LabelOutput):
        files["labels.json"] = label_names(run.spec)
    if isinstance(trained, DistillSpansResult):
        return files | {"calibration.json": trained.calibration, "extraction.json": saved_plan(run)}
    if isinstance(trained, DistillResult):
        calibration = {"temperature_ppm": round(trained.temperature * 1_000_000)}
        return files | {"calibration.json": calibration | ({} if abstain_ppm is None else {"abstain_ppm": abstain_ppm})}
    return files | {"prompt.json": prompt_json(run.spec)}


def _base_of(run: CompileRun, trained: Trained) -> dict[str, str]:
    """The base that the adapter fits."""
    train = run.spec.train
    name = train.causal.base if isinstance(trained, DistillCausalResult) else train.base
    return {"id": name, "sha256": trained.base_model_sha256}


def _predictions(measured: Measurement) -> dict[str, Any]:
    """Row by row what was answered on held-out data; the inputs themselves stay with the tenant."""
    value = measured.to_json()
    names = (
        "predictions",
        "baseline_predictions",
        "gold_predictions",
        "random_predictions",
        "confidences_ppm",
        "failed",
        "verdicts",
        "rule_rows",
        "fields",
    )
    return {name: value[name] for name in names if name in value}


def _training_stats(run: CompileRun, compile: Compile, trained: Trained) -> dict[str, Any]:
    return {
        "active": trained.active,
        "n_pairs": trained.n_pairs,
        "n_parameters": trained.n_parameters,
        "training_log": trained.training_log,
        "trials": [
            {name: value for name, value in trial.items() if name not in _MEASURED}
            for trial in run.output(EvaluationOut).trials
        ],
        "k_sampling": k_sampling(
            run,
            compile,
            embedder=run.output(SlicingOut).embedder,
            labels=run.output(LabelingOut).facts(),
        ),
    }


def _provenance(run: CompileRun, steps: dict[str, StepRun], base: dict[str, str]) -> dict[str, Any]:
    teacher = run.spec.teacher
    return {
        "spec_sha256": sha256_of(canonical_spec(run.spec)),
        "teacher": {"provider": teacher.provider, "model": teacher.model, "note": CARD_NOTES[teacher.provider]},
        "base": base,
        "steps": {
            name: step.output["digests"] for name, step in steps.items() if step.output and name != StepName.PACKAGING
        },
        "builder": "kolm",
    }


def _manifest_fields(run: CompileRun, compile: Compile, base: dict[str, str], key: Ed25519PrivateKey) -> dict[str, Any]:
    last = Receipt.objects.filter(tenant_id=run.tenant_id, compile_id=compile.id).order_by("seq").last()
    assert last is not None
    assert compile.started_at is not None
    return {
        "name": run.spec.name,
        "compile": encode_id(Prefix.COMPILE, compile.id),
        "tenant_digest": sha256_hex(b"kolm/tenant/" + run.tenant_id.bytes),
        "task_type": run.spec.output.type,
        # a key vouches for nothing from before its time: a compile that is older than the key is of the key's first day
        "created_at": utc_text(max(compile.started_at, valid_from(raw_of(key)))),
        "base": base,
        "k_score_ppm": compile.k_score_ppm,
        "gate": "passed",
        "receipt_head": last.payload_sha256,
    }
