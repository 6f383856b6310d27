"""Recipes: when the best trial is known, one more job of a runner observes the teacher's samples, makes the recipe pack
and measures what should draft for this model. Its pack and the time that it saves enter what the gate judges: a model
that missed only the K-score may pass with them.

A pack only ever saves time. So nothing here fails a compile: a job that comes to nothing leaves a warning and an empty
pack, and a pack that would cost the gate, or the score of a model that misses it, is left out.
"""

from dataclasses import asdict, replace
from typing import Any

from backend.artifacts.receipting import as_integers
from backend.blobs import blob_size, get_blob, get_jsonl, has_blob, put_json, put_jsonl
from backend.compiles import leases
from backend.domain.evaluation.gate_floors import FloorName
from backend.domain.jobs.causal_jobs import DistillCausalResult
from backend.domain.jobs.recipe_jobs import PackRecipesJob, PackRecipesResult
from backend.domain.jobs.recipe_results import pack_recipes_result
from backend.domain.jobs.runner_jobs import RunnerJobKind
from backend.domain.jobs.runner_results import BadResult
from backend.domain.lifecycle import StepName
from backend.domain.planning.step_outputs import LabelingOut, SlicingOut
from backend.domain.planning.trial_estimates import recipes_cost
from backend.domain.planning.trial_records import TrialRecord
from backend.domain.planning.trials import TrialOutcome
from backend.domain.recipes.mining.building import PackOptions
from backend.domain.recipes.pack import InvalidPack, read_pack
from backend.domain.spec.defaults import answer_max_tokens
from backend.domain.spec.task_prompt import answer_form, system_prompt
from backend.runner_jobs.leases import Offer
from backend.runner_jobs.models import RunnerJob
from workers.step.durable import CompileRun
from workers.step.runner_wait import RunnerJobFailed, RunnerRefused, Slot, result_or_wait, runner_facts
from workers.step.spending import capture, left_to_bill
from workers.training.earlier_recipes import EarlierRecipes, earlier_recipes
from workers.training.heldout import evaluation_of, gate_of, score_of
from workers.training.job_work import drafting_work
from workers.training.measurement import Measurement, quantiles_us
from workers.training.trial_jobs import Trained
from workers.training.trials import measurement_at, trained_in, trial_records

STEP = StepName.EVALUATION
MAX_PROMPTS = 64
MIN_LATENCIES = 5  # fewer say nothing of a median; the evaluation's own stand then


def pack_recipes(run: CompileRun, nth: int) -> bool:
    """Make the pack of trial `nth`; False where a runner works and the lease was given back."""
    record, trained = trial_records(run)[nth], trained_in(run, nth)
    if record.has_recipes or not isinstance(trained, DistillCausalResult):
        return True
    why_not = _why_not(run, record)
    if why_not:
        return _end(run, nth, None, facts={"why_not": why_not})
    measured = measurement_at(run, record.evals)
    prompts = _prompts(run, measured)
    try:
        finished = result_or_wait(
            run, STEP, lambda: _offer(run, trained, prompts), slot=Slot(trial=nth, role="recipes")
        )
        if finished is None:
            return False
        job, value = finished
        result = pack_recipes_result(value, n_prompts=len(prompts), sources=run.spec.recipes.sources)
        facts = _pack_facts(run, trained, result)
    except (RunnerJobFailed, RunnerRefused, BadResult, InvalidPack) as error:
        return _end(run, nth, None, facts={"why_not": error.code}, warning=error.message)
    kept = _if_gate_holds(run, trained, measured, facts)
    outcome = _judged_with(run, trained, record.outcome, with_recipes(measured, kept))
    return _end(run, nth, job, facts=kept, result=result, outcome=outcome)


def _why_not(run: CompileRun, record: TrialRecord) -> str:
    """The reason for which no pack is made; "" where one is."""
    recipes = run.spec.recipes
    has_observations = bool(run.output(LabelingOut).observations)
    with run.transaction() as fenced:
        has_money = left_to_bill(fenced) >= recipes_cost(run.spec, run.book).expected
    if not recipes.enabled or not recipes.sources or not has_observations:
        return "not_wanted"
    if record.outcome is None or record.first_failed not in (None, FloorName.K_MIN):
        return "gate_missed"
    return "" if has_money or record.jobs.get("recipes") else "budget"


def _prompts(run: CompileRun, measured: Measurement) -> list[str]:
    """Held-out inputs for the model, spread evenly: those that no rule answers, where there are such."""
    heldout = get_jsonl(run.tenant_id, run.output(SlicingOut).gold_heldout)
    ruled = set(measured.rule_rows or ())
    rows = [row["input"] for i, row in enumerate(heldout) if i not in ruled] or [row["input"] for row in heldout]
    n = min(MAX_PROMPTS, len(rows))
    return [rows[i * len(rows) // n] for i in range(n)]


def _offer(run: CompileRun, trained: DistillCausalResult, prompts: list[str]) -> Offer:
    recipes = run.spec.recipes
    observations = run.output(LabelingOut).observations
    with run.transaction():
        earlier: EarlierRecipes = earlier_recipes(run, trained.tokenizer_sha256)
    job = PackRecipesJob(
        base_model=run.spec.train.causal.base,
        base_model_sha256=trained.base_model_sha256,
        system=system_prompt(run.spec),
        answer=answer_form(run.spec),
        max_new_tokens=answer_max_tokens(run.spec),
        adapter_sha256=trained.adapter_sha256,
        adapter_config=trained.adapter_config,
        observations_sha256=observations,
        prompts_sha256=put_jsonl(run.tenant_id, [{"input": text} for text in prompts]),
        earlier_sha256=earlier.pack,
        feedback_sha256=earlier.feedback,
        epoch_sha256=earlier.epoch,
        options=asdict(PackOptions(max_bytes=recipes.max_kib * 1024)),
        sources=list(recipes.sources),
        draft_base=recipes.draft_base or "",
        budget_s=recipes.budget_s,
    )
    named = (job.adapter_sha256, job.observations_sha256, job.prompts_sha256, *asdict(earlier).values())
    inputs = tuple(digest for digest in named if digest)
    return Offer(kind=RunnerJobKind.PACK_RECIPES, payload=job.to_json(), inputs=inputs)


def _pack_facts(run: CompileRun, trained: DistillCausalResult, result: PackRecipesResult) -> dict[str, Any]:
    """The pack and the choice as receipts and the API tell them. Raises BadResult, InvalidPack."""
    if not has_blob(run.tenant_id, result.pack_sha256):
        raise BadResult("its recipe pack was never handed over")
    pack = read_pack(get_blob(run.tenant_id, result.pack_sha256), tokenizer_sha256=trained.tokenizer_sha256)
    size = blob_size(run.tenant_id, result.pack_sha256)
    if size > run.spec.recipes.max_kib * 1024:
        raise BadResult("its recipe pack is larger than recipes.max_kib")
    sources = result.measured[result.chosen]["sources"]
    if list(pack.sources) != sources:
        raise BadResult("its recipe pack names another choice")
    return {
        "pack_sha256": result.pack_sha256,
        "size_bytes": size,
        "n_recipes": len(pack.recipes),
        "sources": sources,
        "chosen": result.chosen,
        "reason": result.reason,
        "measured": [{k: v for k, v in arm.items() if k != "latencies_us"} for arm in result.measured],
        "n_identical": result.n_identical,
        "stats": result.stats,
        "device": result.device,
        "engine": as_integers(result.engine),
    } | _latency(result)


def _latency(result: PackRecipesResult) -> dict[str, Any]:
    """The chosen arm's latencies and its pace beside no drafts, where they are enough to say anything."""
    taken, plain = (result.measured[i]["latencies_us"] for i in (result.chosen, 0))
    if not result.chosen or len(taken) < MIN_LATENCIES:
        return {}
    pace = result.own_pace_ppm or sum(taken) * 1_000_000 // max(1, sum(plain))  # of the runner of before: wall time
    return {"latencies_us": sorted(taken), "own_pace_ppm": pace}


def _if_gate_holds(run: CompileRun, trained: Trained, measured: Measurement, facts: dict[str, Any]) -> dict[str, Any]:
    """The facts, without their pack where it costs more than it brings: the gate that the model alone passes, or a
    part of the score of a model that misses it either way."""
    evaluation = evaluation_of(run, measured)
    alone = score_of(run, evaluation, measured, trained)
    score = score_of(run, evaluation, with_recipes(measured, facts), trained)
    if gate_of(run, measured, evaluation, score, trained).passed:
        return facts
    if gate_of(run, measured, evaluation, alone, trained).passed:
        return {"why_not": "gate_missed", "reason": "With its bytes the K-score would miss the gate."}
    if score.composite_ppm >= alone.composite_ppm:
        return facts
    return {"why_not": "gate_missed", "reason": "Its bytes cost the K-score more than the time that it saves."}


def _judged_with(
    run: CompileRun, trained: Trained, outcome: TrialOutcome | None, with_pack: Measurement
) -> TrialOutcome | None:
    """The outcome of a trial that missed the gate without its pack, judged with it."""
    if outcome is None or outcome.passed:
        return outcome
    evaluation = evaluation_of(run, with_pack)
    score = score_of(run, evaluation, with_pack, trained)
    decision = gate_of(run, with_pack, evaluation, score, trained)
    return replace(outcome, passed=decision.passed, first_failed=decision.first_failed, k_score_ppm=score.composite_ppm)


def with_recipes(measured: Measurement, facts: dict[str, Any]) -> Measurement:
    """The measurement of a trial with its pack: an answer takes as long as it took with what was chosen to draft, and
    as much of its own time as that arm took of the time of no drafts. The inputs that a rule answers come before all
    others in the order of time."""
    taken, pace = facts.get("latencies_us"), facts.get("own_pace_ppm")
    shown = {name: value for name, value in facts.items() if name != "latencies_us"}
    own = measured.own if measured.own is None or pace is None else measured.own.at_pace(pace)
    with_pack = replace(measured, recipes=shown, own=own)
    ruled_ppm = 0 if measured.used_rules is None else measured.used_rules.coverage_ppm
    if not taken or ruled_ppm >= 500_000:
        return with_pack
    n_before = len(taken) * ruled_ppm // (1_000_000 - ruled_ppm)
    p50, p95 = quantiles_us([0] * n_before + taken)
    return replace(with_pack, latency_us_p50=p50, latency_us_p95=p95, n_latencies=len(taken))


def _end(
    run: CompileRun,
    nth: int,
    job: RunnerJob | None,
    *,
    facts: dict[str, Any],
    result: PackRecipesResult | None = None,
    outcome: TrialOutcome | None = None,
    warning: str = "",
) -> bool:
    """Write down what came of it and what it cost; once."""
    record = trial_records(run)[nth]
    evals = put_json(run.tenant_id, with_recipes(measurement_at(run, record.evals), facts).to_json())
    used = []
    if job is not None and result is not None:
        used = runner_facts(run, job, drafting_work(run, result), result.runner_ms)
    with run.transaction() as fenced:
        capture(fenced, STEP, used)
        step = run.step(STEP)
        record = TrialRecord.from_json(step.trials[nth])
        judged = outcome or record.outcome
        step.trials[nth] = replace(record, has_recipes=True, evals=evals, outcome=judged).to_json()
        step.save(update_fields=["trials"])
        leases.note_progress(run.lease)
        if warning:
            run.warn(
                "recipes_failed",
                "No recipe pack could be made; the artifact gets an empty one and answers without drafted tokens.",
                failure=facts["why_not"],
                detail=warning[:500],
                step=STEP.value,
            )
    return True
