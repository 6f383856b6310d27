"""A json task's span student, or one of a text task of fixed forms, ready to answer: merged weights, no torch for BERT
bases, no state between calls.

From a verified `.kolm` it reads `adapter.safetensors`, `adapter_config.json`, `extraction.json` (the plan),
`calibration.json` and the schema in `spec.json` (of a text task in the plan). `rules.json` answers before the model
where it is sure.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Any, NotRequired, Self, TypedDict, cast

from backend.domain.answers.json_schemas import normal_schema
from backend.domain.answers.json_values import normal_answer_text
from backend.domain.extraction.assembling import Assembler
from backend.domain.extraction.plan import ExtractionPlan
from backend.domain.extraction.reads import FieldRead
from gpu_runners.artifacts.label_model import ONE_BY_ONE, read_json
from gpu_runners.artifacts.rules_first import RulesFirst, predict_with_rules
from gpu_runners.errors import JobFailed
from gpu_runners.models.bases import Base
from gpu_runners.models.encoder_runtimes import Runtime
from gpu_runners.models.spans.adapter import SpanAdapter, SpanConfig, from_bytes, head_sizes
from gpu_runners.models.spans.decoding import Calibration, Reading, read_logits
from gpu_runners.models.spans.forward import SpanForward
from gpu_runners.models.spans.tokens import SpanTokenizer

PPM = 1_000_000


class SpanOutput(TypedDict):
    """`output` is the answer as JSON text, or the text itself, `confidence` in [0, 1] how sure it is of the whole;
    `fields` say of each field, or part of a text, `{"path", "start", "end", "confidence_ppm"}`, in code points of the
    input. `rule`: as in a label's."""

    output: str
    finish_reason: str
    n_tokens: int
    latency_us: int
    confidence: NotRequired[float]
    fields: NotRequired[list[dict[str, Any]]]
    rule: NotRequired[int]


class SpanModel:
    def __init__(
        self,
        *,
        forward: SpanForward,
        tokenizer: SpanTokenizer,
        assembler: Assembler,
        schema: Mapping[str, Any],
        calibration: Calibration,
        rules: RulesFirst | None = None,
    ) -> None:
        self.forward, self.tokenizer, self.assembler, self.schema = forward, tokenizer, assembler, schema
        self.calibration, self.rules = calibration, rules
        self._normal_schema = normal_schema(schema)

    @property
    def device(self) -> str:
        return self.forward.device

    @property
    def engine_name(self) -> str:
        return self.forward.body.name

    def n_tokens(self, text: str) -> int:
        """Count the tokens of an input, special ones included. Those that two windows read count once."""
        return self.tokenizer.n_tokens(text)

    def about(self) -> dict[str, Any]:
        """Return what `kolm serve` says of the answers."""
        return {"answer": self.answer_form()}

    def answer_form(self) -> dict[str, Any]:
        """Return the form of an answer, as prompt.json has a causal model's."""
        if self.assembler.plan.sentences is not None:
            return {"type": "text"}
        return {"type": "json", "schema": self.schema}

    @classmethod
    def build(
        cls,
        *,
        base: Base,
        runtime: Runtime,
        adapter: SpanAdapter,
        config: SpanConfig,
        schema: Mapping[str, Any],
        plan: ExtractionPlan,
        calibration: Calibration,
        rules: RulesFirst | None = None,
    ) -> Self:
        """Raises JobFailed(invalid_adapter, base_mismatch)."""
        if config.base_sha256 != base.sha256:
            raise JobFailed(
                f"The adapter was trained on another {config.base!r} ({config.base_sha256[:12]}…) than this machine's "
                f"({base.sha256[:12]}…).",
                code="base_mismatch",
            )
        body = runtime.body(adapter.lora, rank=config.rank, alpha=config.alpha)
        return cls(
            forward=SpanForward(body, adapter.heads, adapter.added_kinds()),
            tokenizer=SpanTokenizer(base, max_tokens=config.max_tokens, prefix=config.prefix),
            assembler=Assembler(schema, plan),
            schema=schema,
            calibration=calibration,
            rules=rules,
        )

    @classmethod
    def from_members(cls, members: Mapping[str, bytes], *, base: Base, runtime: Runtime) -> Self:
        """Only for members whose hashes were checked (`kolm_verify.load_verified`)."""
        try:
            plan = ExtractionPlan.from_json(read_json(members, "extraction.json"))
            schema = plan.sentences.schema() if plan.sentences else read_json(members, "spec.json")["output"]["schema"]
            calibration = Calibration.from_json(read_json(members, "calibration.json"))
            assembler = Assembler(schema, plan)
        except (ValueError, KeyError, TypeError) as error:
            message = f"The artifact's extraction cannot be read ({error})."
            raise JobFailed(message, code="invalid_artifact") from error
        has_lists = any(leaf.list_path for leaf in assembler.leaves)
        return cls.build(
            base=base,
            runtime=runtime,
            adapter=from_bytes(members["adapter.safetensors"], head_sizes(plan, has_lists=has_lists)),
            config=SpanConfig.from_json(read_json(members, "adapter_config.json")),
            schema=schema,
            plan=plan,
            calibration=calibration,
            rules=RulesFirst.from_members(members, labels=None),
        )

    def warm_up(self) -> None:
        """Make one pass of the model, whatever a rule would say, as `LabelModel.warm_up`."""
        self.predict_by_model(["a"])

    def predict(self, texts: Sequence[str]) -> list[SpanOutput]:
        """One row an input, in order."""
        return cast(
            list[SpanOutput], predict_with_rules(self.rules, texts, is_label=False, model=self.predict_by_model)
        )

    def predict_by_model(self, texts: Sequence[str]) -> list[SpanOutput]:
        """The same without the rules."""
        size = 1 if len(texts) <= ONE_BY_ONE else self.forward.batch
        out: list[SpanOutput] = []
        for start in range(0, len(texts), size):
            chosen = texts[start : start + size]
            began = time.perf_counter_ns()
            rows = [self._row(text, reading) for text, reading in zip(chosen, self.read(chosen), strict=True)]
            latency_us = (time.perf_counter_ns() - began) // 1000 // len(chosen)
            out += [SpanOutput(**(row | {"latency_us": latency_us})) for row in rows]  # type: ignore[typeddict-item]
        return out

    def read(self, texts: Sequence[str]) -> list[Reading]:
        """The calibrated readings of some inputs."""
        tokens = self.tokenizer.read(texts)
        plan = self.assembler.plan
        return [
            self.calibration.reading(read_logits(plan, logits, one.offsets, one.glued))
            for one, logits in zip(tokens, self.forward.logits(tokens), strict=True)
        ]

    def _row(self, text: str, reading: Reading) -> dict[str, Any]:
        answer, fields = self.assembler.answer(text, reading.spans, reading.classes)
        return {
            "output": self._write(answer),
            "finish_reason": "stop",
            "n_tokens": 0,
            "confidence": round(reading.confidence, 6),
            "fields": [field_row(one) for one in fields],
        }

    def _write(self, answer: Any) -> str:
        plan = self.assembler.plan
        if plan.sentences is None:
            return normal_answer_text(answer, self._normal_schema)
        return plan.sentences.write(answer) or plan.sentences.write(plan.fallback) or ""


def field_row(one: FieldRead) -> dict[str, Any]:
    """A field as the API tells it."""
    return {"path": one.path, "start": one.start, "end": one.end, "confidence_ppm": round(one.confidence * PPM)}
