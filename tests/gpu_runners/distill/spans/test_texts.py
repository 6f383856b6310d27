"""The real MiniLM, trained for real to answer with texts of fixed forms."""

import hashlib
import json

from backend.domain.answers.json_values import answer_text
from backend.domain.extraction.learning import is_extraction
from backend.domain.extraction.sentence_learning import learn_text_plan
from backend.domain.jobs.span_jobs import DistillSpansJob, EvaluateSpansJob, SpanOptions
from gpu_runners.distill.spans.train import distill_spans
from gpu_runners.jobs.span_evaluation import evaluate_spans
from gpu_runners.models.bases import Base
from tests.gpu_runners.small_orders import order_pairs

FORMS = {"soon": "Needs the {item} in {city} now.", "someday": "Can wait for the {item} in {city}."}


def text_pairs(n: int) -> list[tuple[str, str]]:
    return [(source, FORMS[answer["urgency"]].format(**answer)) for source, answer in order_pairs(n)]


def test_a_student_of_texts_answers_inputs_that_it_has_not_seen_in_the_forms_of_its_pairs(base: Base) -> None:
    pairs = text_pairs(70)
    plan = learn_text_plan(pairs[:48])
    assert is_extraction(plan)
    assert plan.sentences is not None
    schema = plan.sentences.schema()
    read = [(source, plan.sentences.read(text, source)) for source, text in pairs[:48]]
    rows = [{"input": source, "output": answer_text(answer, schema), "weight": 1.0} for source, answer in read]
    dataset = "".join(json.dumps(row) + "\n" for row in rows).encode()
    job = DistillSpansJob(
        base_model=base.name,
        schema=schema,
        plan=plan.to_json(),
        dataset_sha256=hashlib.sha256(dataset).hexdigest(),
        options=SpanOptions(epochs=8).to_json(),
        checkpoint_every_s=1e9,
    )
    blob, trained = distill_spans(job, dataset, base=base)
    asked = EvaluateSpansJob(
        base_model=base.name,
        base_model_sha256=base.sha256,
        schema=schema,
        plan=plan.to_json(),
        adapter_sha256=trained.adapter_sha256,
        adapter_config=trained.adapter_config,
        calibration=trained.calibration,
        inputs_sha256="",
    )
    fresh = pairs[48:]
    texts = [*(source for source, _ in fresh), "", "\u202e{part_1}", "no such thing"]
    inputs = "".join(json.dumps({"input": text}) + "\n" for text in texts).encode()
    outputs = evaluate_spans(asked, inputs, blob, base=base).outputs
    assert sum(one == text for one, (_, text) in zip(outputs, fresh, strict=False)) >= 18
    assert all(one.endswith(".") for one in outputs)
