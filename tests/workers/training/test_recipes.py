"""The recipe pack and the rules of a compile: what is asked of a runner, what of its answer is believed, what of it
enters the score, the receipt and the artifact, and that nothing of it can fail a compile."""

import json
import zipfile
from io import BytesIO
from typing import Any

import pytest

from backend.artifacts.models import Artifact
from backend.blobs import get_blob, get_json, get_jsonl, put_blob, put_jsonl
from backend.compiles.models import Compile, CompileEvent, StepRun
from backend.domain.canonical import canonical_json, sha256_hex
from backend.domain.jobs.runner_jobs import RunnerJobKind
from backend.domain.lifecycle import CompileStatus, StepName
from backend.domain.recipes.pack import Recipe, RecipePack
from backend.domain.recipes.shapes import SHAPE_VERSION
from backend.domain.rules.rule_list import Evidence, FieldRule, RuleList
from backend.runner_jobs.models import RunnerJob
from backend.tenants.isolation import tenant_scope
from tests.compile_factories import change, fresh
from tests.workers.answer_helpers import (
    EASY,
    TEST,
    TEXTS,
    TRAIN,
    Killed,
    advance,
    answered,
    at_distillation,
    bring,
    fail,
    json_answer,
    json_spec,
    right,
    trained,
    trial,
)
from tests.workers.pipeline_helpers import check_money, step
from workers.training import recipes

pytestmark = pytest.mark.usefixtures("committed_db")

PACK = RunnerJobKind.PACK_RECIPES
TOKENIZER = "c" * 64  # of answer_pieces.trained
ON = {"enabled": True, "rules": True, "budget_s": 2.5}


def with_observations(row: Compile, **digests: str) -> Compile:
    """As labelling leaves them, for the 24 pairs of `answer_pieces`."""
    observed = [{"output": json_answer(text), "samples": [json_answer(text)] * 3} for text in TEXTS]
    with tenant_scope(row.tenant_id):
        labeling = StepRun.objects.get(compile=row, name=StepName.LABELING)
        labeling.output["digests"] |= {"observations": put_jsonl(row.tenant_id, observed), **digests}
        labeling.save()
    return row


@pytest.fixture
def row(committed_db: None) -> Compile:
    return with_observations(at_distillation(json_answer, **json_spec(gate=EASY, recipes=ON)))


def small_pack(*sources: str, tokenizer: str = TOKENIZER) -> RecipePack:
    run = Recipe(after=(-1,), shape="", run=(1, 2), after_text="", run_text='{"', support=24, agreed=24)
    return RecipePack(
        tokenizer_sha256=tokenizer,
        base="Qwen/Qwen2.5-0.5B-Instruct",
        recipes=(run,),
        shape_version=SHAPE_VERSION,
        sources=sources,
        stats={"n_observed": 24},
    )


def arm(*sources: str, latencies_us: list[int], **counts: int) -> dict[str, Any]:
    return {
        "sources": list(sources),
        "n_prompts": len(latencies_us),
        "n_tokens": 96,
        "n_steps": 96,
        "drafted": 0,
        "accepted": 0,
        "wall_us": sum(latencies_us),
        "p50_us": sorted(latencies_us)[len(latencies_us) // 2],
        "by_source": [],
        "latencies_us": latencies_us,
    } | counts


def packed(row: Compile, pack: RecipePack | None = None, **changes: Any) -> dict[str, Any]:
    """What a runner brings back: with the pack's tokens an answer takes 700 us instead of 2,000."""
    made = small_pack("pack") if pack is None else pack
    return {
        "pack_sha256": put_blob(row.tenant_id, made.to_bytes()),
        "measured": [
            arm(latencies_us=[2000] * 8),
            arm("pack", latencies_us=[700] * 8, n_steps=24, drafted=80, accepted=72),
        ],
        "chosen": 1,
        "reason": "On 8 prompts pack takes 65 % less time than no drafts.",
        "stats": {"n_observed": 24, "n_recipes": 1},
        "n_identical": 8,
        "device": "cpu",
        "engine": {"name": "kolm-torch", "share": 0.5},
        "runner_ms": 1200,
    } | changes


def told(row: Compile) -> dict[str, Any]:
    facts: dict[str, Any] = step(row, StepName.EVALUATION).output["facts"]
    return facts


def members(row: Compile) -> dict[str, bytes]:
    with tenant_scope(row.tenant_id):
        artifact = Artifact.objects.get(compile_id=row.id)
    with zipfile.ZipFile(BytesIO(get_blob(row.tenant_id, artifact.sha256))) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def k_score(row: Compile) -> dict[str, Any]:
    score: dict[str, Any] = step(row, StepName.GATE).output["facts"]["k_score"]
    return score


def warnings(row: Compile) -> list[dict[str, Any]]:
    with tenant_scope(row.tenant_id):
        return list(CompileEvent.objects.filter(compile=row, type="warning").values_list("data", flat=True))


def jobs(row: Compile) -> list[str]:
    return list(RunnerJob.objects.filter(compile_id=row.id).order_by("created_at").values_list("kind", flat=True))


def at_pack_job(row: Compile) -> Compile:
    trial(row, right(24))
    advance(row)
    return row


def test_the_best_model_gets_a_pack_and_is_judged_with_it(row: Compile) -> None:
    at_pack_job(row)
    assert jobs(row) == [TRAIN, TEST, PACK]
    asked = bring(row, PACK, packed(row))
    advance(row)
    assert fresh(row).status == CompileStatus.SUCCEEDED
    assert asked["sources"] == ["pack", "schema", "prompt"]
    assert (asked["budget_s"], asked["options"]["max_bytes"], asked["draft_base"]) == (2.5, 65_536, "")
    assert asked["earlier_sha256"] == asked["feedback_sha256"] == asked["epoch_sha256"] == ""
    prompts = [one["input"] for one in get_jsonl(row.tenant_id, asked["prompts_sha256"])]
    assert prompts == TEXTS
    own = told(row)["recipes"]
    assert (own["sources"], own["chosen"], own["n_recipes"], own["n_identical"]) == (["pack"], 1, 1, 8)
    assert own["measured"][1]["accepted"] == 72
    assert "latencies_us" not in own["measured"][1]
    data = small_pack("pack").to_bytes()
    assert members(row)["recipes.json"] == data
    assert members(row)["rules.json"] == canonical_json({"format": "kolm-rules/1", "task": "label", "rules": []})
    score = k_score(row)
    assert score["p50_us"] == row.evaluation["latency_us_p50"] == 700
    assert score["size_bytes"] == len(b"adapter{}") + len(data)
    check_money(row)


def test_the_receipt_tells_what_was_chosen_and_measured_in_whole_numbers(row: Compile) -> None:
    at_pack_job(row)
    bring(row, PACK, packed(row))
    advance(row)
    (receipt,) = [data for name, data in members(row).items() if name.endswith("-evaluation.dsse.json")]
    from base64 import b64decode

    facts = json.loads(b64decode(json.loads(receipt)["payload"]))["predicate"]["facts"]
    assert facts["recipes"]["pack_sha256"] == sha256_hex(small_pack("pack").to_bytes())
    assert facts["recipes"]["engine"] == {"name": "kolm-torch", "share_ppm": 500_000}
    assert [one["n_steps"] for one in facts["recipes"]["measured"]] == [96, 24]


def test_the_job_costs_what_its_runner_took_once(row: Compile, monkeypatch: pytest.MonkeyPatch) -> None:
    at_pack_job(row)
    before = step(row, StepName.EVALUATION).spent_microusd
    bring(row, PACK, packed(row))
    real, died = recipes.trial_records, []

    def dies_after_the_end(*given: Any) -> Any:
        if len(died) == 0 and real(*given)[0].has_recipes:
            died.append(True)
            raise Killed
        return real(*given)

    monkeypatch.setattr(recipes, "leases", recipes.leases)
    monkeypatch.setattr("workers.steps.evaluation.trial_records", dies_after_the_end)
    advance(row)
    advance(row)
    assert died
    assert fresh(row).status == CompileStatus.SUCCEEDED
    assert step(row, StepName.EVALUATION).spent_microusd > before
    assert jobs(row).count(PACK) == 1
    check_money(row)


def test_a_job_that_fails_leaves_a_warning_and_an_empty_pack(row: Compile) -> None:
    at_pack_job(row)
    fail(row, PACK, "generation_failed")
    advance(row)
    assert fresh(row).status == CompileStatus.SUCCEEDED
    assert [(one["code"], one["failure"]) for one in warnings(row)] == [("recipes_failed", "generation_failed")]
    assert members(row)["recipes.json"] == RecipePack.empty().to_bytes()
    assert told(row)["recipes"] == {"why_not": "generation_failed"}
    assert k_score(row)["p50_us"] == 2000
    check_money(row)


@pytest.mark.parametrize(
    ("pack", "changes", "code"),
    [
        (small_pack("pack", tokenizer="d" * 64), {}, "tokenizer_mismatch"),
        (small_pack("pack", "schema"), {}, "runner_bad_result"),
        (None, {"pack_sha256": "e" * 64}, "runner_bad_result"),
        (None, {"chosen": 7}, "runner_bad_result"),
        (None, {"measured": []}, "runner_bad_result"),
    ],
)
def test_what_cannot_be_a_pack_is_not_shipped(row: Compile, pack: Any, changes: dict[str, Any], code: str) -> None:
    at_pack_job(row)
    bring(row, PACK, packed(row, pack, **changes))
    advance(row)
    assert fresh(row).status == CompileStatus.SUCCEEDED
    assert [one["failure"] for one in warnings(row)] == [code]
    assert members(row)["recipes.json"] == RecipePack.empty().to_bytes()


def test_bytes_that_are_no_pack_are_not_shipped(row: Compile) -> None:
    at_pack_job(row)
    bring(row, PACK, packed(row, pack_sha256=put_blob(row.tenant_id, b'{"format":"kolm-recipes/1"}')))
    advance(row)
    assert [one["failure"] for one in warnings(row)] == ["invalid_pack"]
    assert members(row)["recipes.json"] == RecipePack.empty().to_bytes()


def test_a_pack_that_would_cost_the_gate_is_left_out(row: Compile) -> None:
    """The K-score of nothing but these bytes, beyond the 64 KiB that cost nothing, falls below what the gate asks."""
    trial(row, right(24), adapter_sha256=put_blob(row.tenant_id, bytes(70_000)))
    advance(row)
    nearly = step(row, StepName.EVALUATION).trials[0]["outcome"]["k_score_ppm"]
    with tenant_scope(row.tenant_id):
        spec = Compile.objects.get(id=row.id).spec
    change(row, spec=spec | {"gate": spec["gate"] | {"k_min": nearly / 1_000_000}})
    heavy = small_pack()
    heavy.stats.update({f"{i:0200}": i for i in range(60)})
    bring(row, PACK, packed(row, heavy, chosen=0))
    advance(row)
    assert fresh(row).status == CompileStatus.SUCCEEDED
    assert told(row)["recipes"]["why_not"] == "gate_missed"
    assert members(row)["recipes.json"] == RecipePack.empty().to_bytes()


SLOW = {"own_ns": [500_000_000] * 24, "own_tokens": [5] * 24, "own_reference_ns": 4_000_000, "own_clock": "cpu"}


def slow_model(k_min: float) -> Compile:
    """All right, and 100 ms a token: a K-score of 0.9145 by itself, and of 0.9573 with a pack that saves 65 %."""
    row = with_observations(at_distillation(json_answer, **json_spec(gate=EASY | {"k_min": k_min}, recipes=ON)))
    advance(row)
    bring(row, TRAIN, trained(row))
    advance(row)
    bring(row, TEST, answered(right(24), **SLOW))
    advance(row)
    assert jobs(row) == [TRAIN, TEST, PACK]  # a larger rank is not what a slow model lacks
    return row


def test_a_model_that_misses_the_k_score_alone_passes_with_the_time_that_its_pack_saves(committed_db: None) -> None:
    row = slow_model(0.94)
    assert step(row, StepName.EVALUATION).trials[0]["first_failed"] == "k_min"
    bring(row, PACK, packed(row, own_pace_ppm=350_000))
    advance(row)
    assert fresh(row).status == CompileStatus.SUCCEEDED
    score = k_score(row)
    assert (score["formula"], score["unit"], score["clock"]) == ("k-score-2", "token", "cpu")
    assert (score["own_us"], score["measured_ns"], score["units_milli"]) == (35_000, 35_000_000, 5000)
    assert score["composite_ppm"] == pytest.approx(957_274, abs=100)
    assert members(row)["recipes.json"] == small_pack("pack").to_bytes()
    (only,) = told(row)["trials"]
    assert (only["passed"], only["first_failed"], only["k_score_ppm"]) == (True, None, score["composite_ppm"])
    assert told(row)["recipes"]["own_pace_ppm"] == 350_000
    check_money(row)


def test_a_pack_that_saves_too_little_for_the_gate_does_not_pass_it(committed_db: None) -> None:
    row = slow_model(0.96)
    bring(row, PACK, packed(row, own_pace_ppm=350_000))
    advance(row)
    assert fresh(row).status == CompileStatus.GATE_FAILED
    gate = fresh(row).gate
    assert gate is not None
    assert gate["first_failed"] == "k_min"
    assert gate["k_score_ppm"] == pytest.approx(957_274, abs=100)
    assert "latency from" not in gate["next_step"]


def test_a_runner_of_before_tells_of_wall_time_and_is_scored_by_it(row: Compile) -> None:
    at_pack_job(row)
    bring(row, PACK, packed(row))
    advance(row)
    score = k_score(row)
    assert (score["clock"], score["reference_ns"]) == ("wall", 0)
    assert (score["own_us"], score["units_milli"]) == (140, 5000)  # 700 us for five tokens


def test_a_model_below_the_gate_gets_no_pack(committed_db: None) -> None:
    spec = json_spec(gate=EASY, recipes=ON, train={"escalate": False})
    row = with_observations(at_distillation(json_answer, **spec))
    trial(row, right(3))
    advance(row)
    assert fresh(row).status == CompileStatus.GATE_FAILED
    assert jobs(row) == [TRAIN, TEST]
    assert told(row)["recipes"] == {"why_not": "gate_missed"}


def test_a_spec_without_recipes_asks_for_none(committed_db: None) -> None:
    row = with_observations(at_distillation(json_answer, **json_spec(gate=EASY)))
    trial(row, right(24))
    advance(row)
    assert fresh(row).status == CompileStatus.SUCCEEDED
    assert jobs(row) == [TRAIN, TEST]


def test_the_next_compile_of_a_family_begins_with_the_earlier_pack(row: Compile) -> None:
    at_pack_job(row)
    bring(row, PACK, packed(row))
    advance(row)
    from backend.tenants.models import Tenant
    from tests.compile_factories import make_compile

    with tenant_scope(row.tenant_id):
        tenant = Tenant.objects.get(id=row.tenant_id)
    following = make_compile(tenant, **json_spec(gate=EASY, recipes=ON))
    with tenant_scope(row.tenant_id):
        for name in (StepName.SLICING, StepName.LABELING):
            source = StepRun.objects.get(compile=row, name=name)
            StepRun.objects.filter(compile=following, name=name).update(status="succeeded", output=source.output)
        steps = StepRun.objects.filter(compile=following, position__lt=5)
        steps.exclude(status="succeeded").update(status="succeeded", output={"digests": {}, "facts": {}})
    trial(following, right(24))
    advance(following)
    asked = bring(following, PACK, packed(following))
    assert get_blob(row.tenant_id, asked["earlier_sha256"]) == small_pack("pack").to_bytes()
    assert asked["feedback_sha256"] == ""


# --- rules ------------------------------------------------------------------------------------------------------------


def some_rules(row: Compile) -> dict[str, str]:
    """A list of one rule; what it answers is what the played runner says."""
    evidence = Evidence(seen=9, support=9, right=9, low_ppm=960_000)
    rule = FieldRule(field=0, when=("parcel",), unless=(), value="x", copy=None, is_absent=False, evidence=evidence)
    rules = RuleList(task="json", rules=(rule,), fields=(("subject",),))
    return {"rules": put_blob(row.tenant_id, rules.to_bytes())}


def ruled(row: Compile, outputs: list[str], said: list[str | None]) -> dict[str, Any]:
    """Training and evaluation of a model that says `outputs`, with rules that say `said`."""
    advance(row)
    bring(row, TRAIN, trained(row))
    advance(row)
    return bring(row, TEST, answered(outputs, rule_answers=said, ruled_latency_us=[5, 5, 5, 2000, 2000]))


def at_rules(**spec: Any) -> Compile:
    row = at_distillation(json_answer, **json_spec(gate=EASY, train={"escalate": False}, **spec))
    return with_observations(row, **some_rules(row))


def test_what_rules_answer_counts_as_the_artifact_s_answer(committed_db: None) -> None:
    row = at_rules()
    said: list[str | None] = [json_answer(text) if i >= 18 else None for i, text in enumerate(TEXTS)]
    asked = ruled(row, right(18), said)
    advance(row)
    assert fresh(row).status == CompileStatus.SUCCEEDED
    assert asked["rules_sha256"] == some_rules(row)["rules"]
    facts = told(row)
    assert (facts["accuracy_ppm"], facts["validity_ppm"]) == (1_000_000, 1_000_000)
    assert facts["rules"] == {
        "is_used": True,
        "n_answered": 6,
        "coverage_ppm": 250_000,
        "marks_ppm": 6_000_000,
        "model_marks_ppm": 0,
    }
    score = k_score(row)
    assert (score["coverage_ppm"], score["rule_coverage_ppm"], score["p50_us"]) == (1_000_000, 250_000, 5)
    assert sha256_hex(members(row)["rules.json"]) == some_rules(row)["rules"]
    assert json.loads(members(row)["evals.json"])["rule_rows"] == list(range(18, 24))


def test_rules_that_are_worse_than_the_model_are_left_out(committed_db: None) -> None:
    row = at_rules()
    said: list[str | None] = [json_answer(TEXTS[0]) if i >= 22 else None for i in range(24)]
    ruled(row, right(24), said)
    advance(row)
    assert fresh(row).status == CompileStatus.SUCCEEDED
    facts = told(row)
    assert (facts["accuracy_ppm"], facts["rules"]["is_used"], facts["rules"]["n_answered"]) == (1_000_000, False, 2)
    assert k_score(row)["rule_coverage_ppm"] == 0
    assert json.loads(members(row)["rules.json"])["rules"] == []
    assert json.loads(members(row)["evals.json"])["predictions"] == right(24)


def test_rules_that_answer_nothing_are_told_of_and_left_out(committed_db: None) -> None:
    row = at_rules()
    ruled(row, right(24), [None] * 24)
    advance(row)
    assert told(row)["rules"]["n_answered"] == 0
    assert json.loads(members(row)["rules.json"])["rules"] == []


def test_what_drafts_is_measured_on_inputs_that_no_rule_answers(committed_db: None) -> None:
    row = at_rules(recipes=ON)
    said: list[str | None] = [json_answer(text) if i < 6 else None for i, text in enumerate(TEXTS)]
    ruled(row, right(24), said)
    advance(row)
    taken = [100, 200, 300, 400, 500, 600]
    measured = [arm(latencies_us=[2000] * 6), arm("pack", latencies_us=taken)]
    asked = bring(row, PACK, packed(row, measured=measured, n_identical=6))
    advance(row)
    assert [one["input"] for one in get_jsonl(row.tenant_id, asked["prompts_sha256"])] == TEXTS[6:]
    # a quarter of all inputs come before the first of these: the median of all is the fourth of eight, and not of six
    assert k_score(row)["p50_us"] == 300
    evals = get_json(row.tenant_id, step(row, StepName.EVALUATION).output["digests"]["evals"])
    assert evals["latency_us_p95"] == 600
