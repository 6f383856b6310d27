"""The real MiniLM, trained for real to say something of each element of a list."""

import hashlib
from typing import Any

import pytest

from backend.domain.answers.json_schemas import validator
from backend.domain.answers.json_values import field_scores, is_exact, parse_answer
from backend.domain.extraction.learning import learn_plan
from backend.domain.jobs.span_jobs import DistillSpansJob, SpanOptions
from gpu_runners.artifacts.span_model import SpanModel
from gpu_runners.distill.spans.train import distill_spans
from gpu_runners.models.bases import Base
from gpu_runners.models.encoder_runtimes import load_runtime
from gpu_runners.models.spans.adapter import SpanConfig, from_bytes, head_sizes
from gpu_runners.models.spans.decoding import Calibration
from tests.backend.domain.extraction.test_elements import ORDERS, SCHEMA, Pair, order_pairs, unit_pairs
from tests.gpu_runners.small_spans import span_dataset


def trained(base: Base, schema: dict[str, Any], pairs: list[Pair]) -> SpanModel:
    plan, data = learn_plan(schema, pairs), span_dataset(pairs, schema)
    options = SpanOptions(epochs=12, precision="fp32", rank=8, alpha=16, validation_share=0.0)
    job = DistillSpansJob(
        base_model=base.name,
        schema=schema,
        plan=plan.to_json(),
        dataset_sha256=hashlib.sha256(data).hexdigest(),
        options=options.to_json(),
        checkpoint_every_s=1e9,
    )
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
