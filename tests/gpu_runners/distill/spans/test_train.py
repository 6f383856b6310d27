"""The real MiniLM, trained for real to extract from forty mails."""

import dataclasses
import json
import unicodedata
from pathlib import Path
from typing import Any

import pytest

from backend.domain.answers.json_schemas import validator
from backend.domain.answers.json_values import field_scores, is_exact, parse_answer
from backend.domain.jobs.span_jobs import EvaluateSpansJob
from backend.domain.jobs.span_results import distill_spans_result, evaluate_spans_result
from gpu_runners.distill.checkpoint import Hooks, StepDone
from gpu_runners.distill.spans.train import distill_spans
from gpu_runners.errors import JobFailed, JobStopped
from gpu_runners.jobs.span_evaluation import evaluate_spans
from gpu_runners.models.bases import Base
from tests.gpu_runners.distill.kept import Kept
from tests.gpu_runners.small_spans import SCHEMA, TrainedSpans, span_job, span_pairs


def evaluated(trained: TrainedSpans, texts: list[str], base: Base) -> list[dict[str, Any]]:
    job = EvaluateSpansJob(
        base_model=base.name,
        base_model_sha256=base.sha256,
        schema=SCHEMA,
        plan=trained.plan.to_json(),
        adapter_sha256=trained.result.adapter_sha256,
        adapter_config=trained.result.adapter_config,
        calibration=trained.result.calibration,
        inputs_sha256="",
    )
    inputs = "".join(json.dumps({"input": text}) + "\n" for text in texts).encode()
    result = evaluate_spans(job, inputs, trained.blob, base=base)
    checked = evaluate_spans_result(result.to_json(), n=len(texts))
    rows = zip(checked.outputs, checked.fields, checked.confidences, checked.baseline_outputs, strict=True)
    return [dict(zip(("output", "fields", "confidence", "bare"), row, strict=True)) for row in rows]


def test_it_knows_its_pairs_and_reads_mails_that_it_has_not_seen(trained_spans: TrainedSpans, base: Base) -> None:
    pairs = span_pairs(80)
    rows = evaluated(trained_spans, [text for text, _ in pairs], base)
    answers = [parse_answer(str(row["output"])) for row in rows]
    assert sum(is_exact(one, gold) for one, (_, gold) in zip(answers[:40], pairs, strict=False)) >= 36
    fresh = [field_scores(one, gold).f1_ppm for one, (_, gold) in zip(answers[40:], pairs[40:], strict=True)]
    assert sum(fresh) >= 0.8 * 1_000_000 * len(fresh)
    assert any(row["bare"] != row["output"] for row in rows)


def test_every_answer_fits_the_schema_and_says_where_its_values_stand(trained_spans: TrainedSpans, base: Base) -> None:
    emoji = "\U0001f600 Zu\u0308rich \u200f"
    hostile = ["", " \n", "buy buy buy " * 200, emoji, "{}" * 50, "日本で3つ買う", "-1 pens"]
    texts = [*hostile, *(text for text, _ in span_pairs(60)[40:])]
    fits = validator(SCHEMA)
    for text, row in zip(texts, evaluated(trained_spans, texts, base), strict=True):
        answer = parse_answer(str(row["output"]))
        assert fits(answer) == []
        for one in row["fields"]:
            if one["start"] is None:
                continue
            surface = text[one["start"] : one["end"]]
            assert surface.strip() == surface != ""
            if one["path"] == "/city":
                assert unicodedata.normalize("NFC", surface) == answer["city"]


def test_the_result_is_what_the_seam_checks(trained_spans: TrainedSpans) -> None:
    result = distill_spans_result(trained_spans.result.to_json())
    assert result.n_pairs == result.n_aligned == 40
    assert set(result.calibration) == {"answer", "classes", "spans"}
    assert result.active["n_validation"] == 8
    assert len(trained_spans.blob) < 1_000_000
    with pytest.raises(Exception, match="calibration"):
        distill_spans_result(dataclasses.replace(result, calibration={"spans": [-1, 0]}).to_json())


def test_the_same_job_gives_the_same_bytes_and_another_seed_others(base: Base) -> None:
    job, data, _ = span_job(span_pairs(24), epochs=1)
    blob, result = distill_spans(job, data, base=base)
    again, same = distill_spans(job, data, base=base)
    assert (blob, result.training_log, result.calibration) == (again, same.training_log, same.calibration)
    other = dataclasses.replace(job, options=job.options | {"seed": 8})
    assert distill_spans(other, data, base=base)[0] != blob


@pytest.mark.parametrize("stop_at", [1, 2, 3, 5])  # in the calibration, at its end, in the training, near its end
def test_a_run_resumed_from_a_checkpoint_ends_with_the_same_bytes(base: Base, stop_at: int, tmp_path: Path) -> None:
    job, data, _ = span_job(span_pairs(30), epochs=2, batch_size=16)  # two steps an epoch; one epoch to calibrate
    whole, result = distill_spans(job, data, base=base)
    saved, steps = Kept(tmp_path), list[StepDone]()
    hooks = Hooks(on_step=steps.append, on_checkpoint=saved, should_stop=lambda: steps[-1].step == stop_at)
    with pytest.raises(JobStopped):
        distill_spans(job, data, base=base, hooks=hooks)
    later: list[StepDone] = []
    blob, resumed = distill_spans(job, data, base=base, resume=saved[-1], hooks=Hooks(on_step=later.append))
    assert blob == whole
    assert later[0].step == stop_at + 1
    assert later[-1].step == later[-1].n_steps == steps[0].n_steps
    assert (resumed.training_log, resumed.calibration) == (result.training_log, result.calibration)


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"options": {"rank": 0}}, "invalid_options"),
        ({"options": {"colour": 1}}, "invalid_options"),
        ({"plan": {"format": "another"}}, "invalid_job"),
    ],
)
def test_a_job_that_makes_no_sense_is_refused(changed: dict[str, dict[str, object]], code: str, base: Base) -> None:
    job, data, _ = span_job(span_pairs(8), epochs=1)
    options = job.options | changed.get("options", {})
    made = dataclasses.replace(job, options=options, plan=changed.get("plan", job.plan))
    with pytest.raises(JobFailed) as refused:
        distill_spans(made, data, base=base)
    assert refused.value.code == code


@pytest.mark.parametrize(
    "line", ["{", '{"input": 1, "output": "{}", "weight": 1}', '{"input": "a", "output": "{", "weight": 1}', ""]
)
def test_a_dataset_that_is_none_names_its_line(line: str, base: Base) -> None:
    job, _, _ = span_job(span_pairs(8), epochs=1)
    with pytest.raises(JobFailed) as refused:
        distill_spans(job, line.encode(), base=base)
    assert refused.value.code == "invalid_dataset"
