"""One compile of the paired experiment, walked by the product's own walker in this process: synthesis, selection,
labels, training, held-out evaluation, gate. Nothing is replaced: the teacher is the grammar server over HTTP, and a
runner's jobs are claimed, trained and reported by the runner's own functions.

Import after Django is set up.
"""

import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import UUID

import yaml

from backend.blobs import get_blob, put_blob
from backend.compiles.lifecycle import submission, transitions
from backend.compiles.models import Candidate, Compile, CompileEvent, StepRun
from backend.domain.answers.candidates import Origin
from backend.domain.ids import Prefix, decode_id
from backend.domain.jobs.runner_jobs import Claim, DistillJob, EvaluateJob, RunnerJobKind
from backend.domain.lifecycle import TERMINAL, StepName
from backend.runner_jobs import leases
from backend.tenants.isolation import tenant_scope
from backend.tenants.models import Tenant
from deploy.embedded.home import ROOT
from gpu_runners.agent import jobs
from tests.bench.draft_kscore_pairs import COLD, COLD_FIXED, JUDGE, LOGPROBS, PICKS, REPEAT, Measured
from tests.factories import make_tenant
from workers.pipeline import advance

EXAMPLE = ROOT / "examples" / "refund-router.yaml"
SIBLING_TASK = "Sort what shoppers write to a shop, by what they want to happen with their money."
VERIFY = {LOGPROBS: "logprobs", JUDGE: "judge", PICKS: "judge"}
# scoring short drafts pays at no price that a vendor asks; a K-score knows no teacher's price
LOGPROBS_PRICE = {"input_usd_per_mtok": 0.02, "output_usd_per_mtok": 20}
N_CANDIDATES, N_PICKS = 48, 16
SIBLING_SEEDS = 1000  # a sibling's seed is its task's and this


class Unfinished(Exception):
    """A compile ended before its K-score was known."""


def spec_of(arm: str, seed: int) -> dict[str, Any]:
    """The demo's task with half its pool and the defaults for all else; all gold is held out, and no slice kept
    from drafts. PICKS has a fixed plan, under which the teacher is asked about picks alone; a default one may buy any
    candidate, and all that compete are asked about."""
    spec: dict[str, Any] = yaml.safe_load(EXAMPLE.read_text())
    spec |= {
        "name": "kscore",
        "examples": spec["examples"] | {"holdout": 1.0},
        "sampling": {"n_candidates": N_CANDIDATES, "seed": seed},
        "draft_cache": {"verify": VERIFY.get(arm, "auto"), "holdback": 0},
        "train": {"seed": seed},
    }
    if arm == LOGPROBS:
        spec["teacher"] |= {"price": LOGPROBS_PRICE}
    if arm in (PICKS, COLD_FIXED):
        spec["plan"] = "fixed"
        spec["sampling"] |= {"k_select": N_PICKS}
    return spec


def sibling_of(arm: str, seed: int) -> dict[str, Any]:
    """What filled the cache: the task in other words, so that no prompt is the same; for REPEAT the same words with
    another seed."""
    spec = spec_of(arm, seed + SIBLING_SEEDS)
    return spec if arm == REPEAT else spec | {"task": SIBLING_TASK}


def measure(arm: str, seed: int) -> Measured:
    """One arm of one seed, with a tenant, hence a cache, of its own."""
    tenant = make_tenant()
    if arm not in (COLD, COLD_FIXED):
        _fill_cache(tenant, sibling_of(arm, seed))
    compile = _submit(tenant, spec_of(arm, seed))
    while compile.status not in TERMINAL:
        advance(compile.id)
        _do_runner_job()
        with tenant_scope(tenant.id):
            compile.refresh_from_db()
    if compile.k_score_ppm is None:
        raise Unfinished(f"{arm}, seed {seed}: {compile.status} {compile.failure_code} {compile.failure_message}")
    return _measured(arm, seed, tenant, compile)


def _submit(tenant: Tenant, spec: Mapping[str, Any]) -> Compile:
    with tenant_scope(tenant.id):
        row = submission.submit(tenant.id, dict(spec), api_key_id=None)
        row.refresh_from_db()
        return row


def _fill_cache(tenant: Tenant, spec: Mapping[str, Any]) -> None:
    """A compile up to where its runner would begin: candidates, selection, labels."""
    row = _submit(tenant, spec)
    advance(row.id)
    with tenant_scope(tenant.id):
        reached = StepRun.objects.get(compile=row, name=StepName.DISTILLATION).runner_job_id
        if reached is None:
            raise Unfinished(f"the sibling came to no training: {row.id}")
        transitions.cancel(tenant.id, row.id)
    advance(row.id)


def _do_runner_job() -> None:
    """Claim the oldest job, if there is one, and do it as a runner does."""
    claim = leases.claim("bench", [RunnerJobKind.DISTILL, RunnerJobKind.EVALUATE])
    if claim is None:
        return
    job_id = decode_id(Prefix.RUNNER_JOB, claim.job_id)
    tenant_id = leases.authenticate(job_id, claim.token).tenant_id
    with tempfile.TemporaryDirectory() as folder:
        done = _work(claim, tenant_id, Path(folder))
        for path in done["blobs"]:
            put_blob(tenant_id, Path(path).read_bytes())
    leases.report_success(job_id, claim.token, done["result"])


def _work(claim: Claim, tenant_id: UUID, folder: Path) -> dict[str, Any]:
    if claim.kind == RunnerJobKind.DISTILL:
        distil = DistillJob.from_json(claim.payload)
        (folder / "dataset").write_bytes(get_blob(tenant_id, distil.dataset_sha256))
        return jobs.distill_files(
            distil, folder=folder, base_dir=None, emit=_ignore, should_stop=lambda: False, line=_Line()
        )
    job = EvaluateJob.from_json(claim.payload)
    (folder / "inputs").write_bytes(get_blob(tenant_id, job.inputs_sha256))
    (folder / "adapter").write_bytes(get_blob(tenant_id, job.adapter_sha256))
    if job.rules_sha256:
        (folder / "rules").write_bytes(get_blob(tenant_id, job.rules_sha256))
    return jobs.evaluate_files(job, folder=folder, base_dir=None, emit=_ignore)


class _Line:
    """The way of checkpoints to where they are kept: here they stay in the folder."""

    sent_s: float | None = 0.0


def _ignore(event: dict[str, Any]) -> None:
    """Progress is for those who watch."""


def _measured(arm: str, seed: int, tenant: Tenant, compile: Compile) -> Measured:
    with tenant_scope(tenant.id):
        steps = {step.name: step for step in StepRun.objects.filter(compile=compile)}
        rows = list(Candidate.objects.filter(compile=compile).exclude(state="rejected"))
        warnings = [event.data["code"] for event in CompileEvent.objects.filter(compile=compile, type="warning")]
    drafts = steps[StepName.SELECTION].output["facts"]["drafts"]
    score = steps[StepName.GATE].output["facts"]["k_score"]
    found = steps[StepName.EVALUATION].output["facts"]
    entered = [row for row in rows if row.origin == Origin.DRAFT]
    return Measured(
        arm=arm,
        seed=seed,
        k_score_ppm=score["composite_ppm"],
        size_bytes=score["size_bytes"],
        p50_us=score["p50_us"],
        cost_nanousd=score["cost_nanousd"],
        n_heldout=found["n"],
        n_answered=found["answered"],
        n_correct=found["correct"],
        n_pool=len(rows),
        n_trained=sum(row.state == "trained" for row in rows),
        from_drafts=dict(Counter(row.certificate for row in entered)),
        trained_from_drafts=dict(Counter(row.certificate for row in entered if row.state == "trained")),
        n_offered=drafts["offered"],
        n_accepted=drafts["accepted"],
        synthesis_microusd=steps[StepName.SYNTHESIS].spent_microusd + steps[StepName.SELECTION].spent_microusd,
        labeling_microusd=steps[StepName.LABELING].spent_microusd,
        saving=drafts["saving"],
        slices=dict(Counter(row["arm"] for row in drafts["slices"])),
        warnings=dict(Counter(warnings)),
    )
