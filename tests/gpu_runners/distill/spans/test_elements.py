"""The real MiniLM, trained for real to say something of each element of a list."""

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from backend.domain.answers.json_schemas import validator
from backend.domain.answers.json_values import field_scores, is_exact, parse_answer
from backend.domain.extraction.assembling import Assembler
from backend.domain.extraction.learning import learn_plan
from backend.domain.extraction.plan import ExtractionPlan
from backend.domain.extraction.reads import ClassRead, SpanRead
from backend.domain.jobs.span_jobs import DistillSpansJob, SpanOptions
from gpu_runners.artifacts.span_model import SpanModel
from gpu_runners.distill.checkpoint import Hooks, StepDone
from gpu_runners.distill.spans.calibration import Judged, note
from gpu_runners.distill.spans.dataset import Pair as Read
from gpu_runners.distill.spans.train import distill_spans
from gpu_runners.errors import JobFailed, JobStopped
from gpu_runners.models.bases import Base
from gpu_runners.models.encoder_runtimes import load_runtime
from gpu_runners.models.spans.adapter import SpanConfig, from_bytes, head_sizes
from gpu_runners.models.spans.decoding import SETS, Calibration, Reading
from tests.backend.domain.extraction.test_elements import ORDERS, SCHEMA, Pair, order_pairs, unit_pairs
from tests.gpu_runners.distill.kept import Kept
from tests.gpu_runners.small_spans import span_dataset


def job_of(
    schema: dict[str, Any], pairs: list[Pair], *, base: Base, **options: Any
) -> tuple[DistillSpansJob, bytes, ExtractionPlan]:
    plan, data = learn_plan(schema, pairs), span_dataset(pairs, schema)
    chosen = SpanOptions(
        **({"epochs": 12, "precision": "fp32", "rank": 8, "alpha": 16, "validation_share": 0.0} | options)
    )
    job = DistillSpansJob(
        base_model=base.name,
        schema=schema,
        plan=plan.to_json(),
        dataset_sha256=hashlib.sha256(data).hexdigest(),
        options=chosen.to_json(),
        checkpoint_every_s=1e9,
    )
    return job, data, plan


def trained(base: Base, schema: dict[str, Any], pairs: list[Pair]) -> SpanModel:
    job, data, plan = job_of(schema, pairs, base=base)
    blob, result = distill_spans(job, data, base=base)
    return SpanModel.build(
        base=base,
        runtime=load_runtime(base),
        adapter=from_bytes(blob, head_sizes(plan, has_lists=True)),
        config=SpanConfig.from_json(result.adapter_config),
        schema=schema,
        plan=plan,
        calibration=Calibration.from_json(result.calibration),
    )


@pytest.fixture(scope="module")
def lines(base: Base) -> SpanModel:
    return trained(base, SCHEMA, unit_pairs(80))


def test_each_element_has_its_own_class(lines: SpanModel) -> None:
    held = unit_pairs(104)[80:]
    rows = lines.predict([text for text, _ in held])
    answers = [parse_answer(row["output"]) for row in rows]
    assert sum(is_exact(one, gold) for one, (_, gold) in zip(answers, held, strict=True)) >= 18
    scores = [field_scores(one, gold).f1_ppm for one, (_, gold) in zip(answers, held, strict=True)]
    assert sum(scores) >= 0.9 * 1_000_000 * len(scores)
    several = next(row for row in rows if row["output"].count("item") == 3)
    paths = [one["path"] for one in several["fields"] if one["start"] is None]
    assert {"/lines/0/gift", "/lines/1/gift", "/lines/2/gift"} <= set(paths)
    assert all(0 <= one["confidence_ppm"] <= 1_000_000 for one in several["fields"])


def test_whatever_it_reads_fits_the_schema(lines: SpanModel) -> None:
    fits = validator(SCHEMA)
    for row in lines.predict(["", "send nothing", "cups cups cups", "\U0001f600 single", "wrapped up"]):
        assert fits(parse_answer(row["output"])) == []


def test_a_shared_value_is_written_in_each_element_with_its_place(base: Base) -> None:
    model = trained(base, ORDERS, order_pairs(40, is_shared=True))
    held = order_pairs(60, is_shared=True)[40:]
    rows = model.predict([text for text, _ in held])
    right = sum(is_exact(parse_answer(row["output"]), gold) for row, (_, gold) in zip(rows, held, strict=True))
    assert right >= 14
    row, (text, gold) = next(
        (row, pair) for row, pair in zip(rows, held, strict=True) if is_exact(parse_answer(row["output"]), pair[1])
    )
    spans = [one for one in row["fields"] if one["path"].endswith("/number")]
    assert [text[one["start"] : one["end"]] for one in spans] == [gold["orders"][0]["number"]] * 2


def test_a_run_with_classes_of_elements_is_repeatable_and_goes_on_where_it_stopped(base: Base, tmp_path: Path) -> None:
    job, data, plan = job_of(SCHEMA, unit_pairs(24), base=base, epochs=2, validation_share=0.2)
    whole, result = distill_spans(job, data, base=base)
    saved, steps = Kept(tmp_path), list[StepDone]()
    hooks = Hooks(on_step=steps.append, on_checkpoint=saved, should_stop=lambda: steps[-1].step == 3)
    with pytest.raises(JobStopped):
        distill_spans(job, data, base=base, hooks=hooks)
    blob, resumed = distill_spans(job, data, base=base, resume=saved[-1])
    assert blob == whole
    assert resumed.calibration == result.calibration
    sizes = head_sizes(plan, has_lists=True)
    adapter = from_bytes(blob, sizes)
    assert {f"elements.{i}" for i in plan.element_rules()} <= set(adapter.heads) & set(adapter.baseline)
    with pytest.raises(JobFailed, match=r"elements\.9") as refused:
        from_bytes(blob, sizes | {"elements.9": 2})
    assert refused.value.code == "invalid_adapter"
    with pytest.raises(JobFailed, match="neither a head"):  # of a plan without closed sets in its list
        from_bytes(blob, {name: rows for name, rows in sizes.items() if not name.startswith("elements.")})


def test_a_class_is_right_where_it_is_its_own_elements_class() -> None:
    """The values of both lines, each with the other's wish: yes and no stand in the answer, and neither is right."""
    plan, (text, answer) = learn_plan(SCHEMA, unit_pairs(60)), ("pens and cups", {"lines": []})
    paths = {rule.path: i for i, rule in enumerate(plan.rules)}
    answer["lines"] = [{"item": "pens", "gift": True}, {"item": "cups", "gift": False}]
    gifts = [ClassRead(rule=paths["/lines/*/gift"], value=value, confidence=0.9) for value in (False, True)]
    spans = [
        SpanRead(rule=paths["/lines/*/item"], start=start, end=start + 4, opens=True, classes=(gift,))
        for start, gift in zip((0, 9), gifts, strict=True)
    ]
    swapped, right = Judged(), Judged()
    assembler, read = Assembler(SCHEMA, plan), Read(text=text, answer=answer, weight=1.0)
    note(swapped, assembler, read, Reading(spans=tuple(spans), classes=(), confidence=0.9))
    assert swapped.right[SETS] == [False, False]
    own = [replace(span, classes=(gift,)) for span, gift in zip(spans, gifts[::-1], strict=True)]
    note(right, assembler, read, Reading(spans=tuple(own), classes=(), confidence=0.9))
    assert right.right[SETS] == [True, True]
