"""A span student, opened for its export: merged weights, its adapter by itself, how it reads texts."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backend.domain.artifact.kolm_verify import Kolm
from gpu_runners.artifacts.label_model import read_json
from gpu_runners.artifacts.loader import check_base_digest
from gpu_runners.artifacts.span_model import SpanModel
from gpu_runners.errors import ExportRefused
from gpu_runners.exports.encoder_student import LabelStudent, open_label_student
from gpu_runners.exports.folder import copy_members
from gpu_runners.models.bases import Base, open_base
from gpu_runners.models.encoder_runtimes import NumpyBody, load_runtime
from gpu_runners.models.encoder_tokens import bare_tokenizer, read_config
from gpu_runners.models.numpy_bert import NumpyBert
from gpu_runners.models.spans.adapter import SpanAdapter, SpanConfig, from_bytes, head_sizes, is_spans

DOCUMENTS = ("labels.json", "extraction.json", "calibration.json", "rules.json")  # of label and span students


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanReading:
    """The way from a text to the token ids of its first window: `before` and `after` are the ids around its own, those
    of the prefix among them, and no row is longer than `max_length`."""

    max_length: int
    before: tuple[int, ...]
    after: tuple[int, ...]

    def to_json(self) -> dict[str, Any]:
        return {"max_length": self.max_length, "before": list(self.before), "after": list(self.after)}


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanStudent:
    """`adapter` and `config` are the artifact's own; `model` answers as `kolm run` does."""

    base: Base
    adapter: SpanAdapter
    config: SpanConfig
    model: SpanModel

    @property
    def reading(self) -> SpanReading:
        tokenizer = self.model.tokenizer
        return SpanReading(max_length=tokenizer.max_tokens, before=tokenizer.before, after=tokenizer.after)

    def tokenizer_json(self) -> str:
        """The base's tokenizer.json, which cuts and pads nothing."""
        text: str = bare_tokenizer(self.base).to_str()
        return text

    def merged_bert(self) -> NumpyBert:
        """The base with the adapter in its weights. Raises ExportRefused for another architecture than BERT's and
        RoBERTa's."""
        body = self.model.forward.body
        if not isinstance(body, NumpyBody):
            kind = read_config(self.base).get("model_type")
            raise ExportRefused(
                f"The base {self.base.name!r} is of the kind {kind!r}, and this export is made for BERT and RoBERTa "
                "encoders: use --to peft."
            )
        return body.bert


Student = LabelStudent | SpanStudent


def is_span_student(kolm: Kolm) -> bool:
    return "extraction.json" in kolm.members and is_spans(read_json(kolm.members, "adapter_config.json"))


def open_student(kolm: Kolm, *, base_dir: Path | None) -> Student:
    """Open the student over an encoder of a verified artifact. Raises ExportRefused for a causal one, JobFailed."""
    if is_span_student(kolm):
        return open_span_student(kolm, base_dir=base_dir)
    return open_label_student(kolm, base_dir=base_dir)


def open_span_student(kolm: Kolm, *, base_dir: Path | None) -> SpanStudent:
    """Open the span student of a verified artifact. Raises JobFailed."""
    wanted = kolm.manifest["base"]
    base = open_base(wanted["id"], base_dir=base_dir)
    check_base_digest(wanted, base)
    model = SpanModel.from_members(kolm.members, base=base, runtime=load_runtime(base))
    has_lists = any(leaf.list_path for leaf in model.assembler.leaves)
    sizes = head_sizes(model.assembler.plan, has_lists=has_lists)
    return SpanStudent(
        base=base,
        adapter=from_bytes(kolm.members["adapter.safetensors"], sizes),
        config=SpanConfig.from_json(read_json(kolm.members, "adapter_config.json")),
        model=model,
    )


def write_documents(student: Student, kolm: Kolm, folder: Path) -> None:
    """Write what is needed to read the logits: members byte for byte, and of a span student its schema."""
    copy_members(kolm, folder, DOCUMENTS)
    if isinstance(student, SpanStudent):
        text = json.dumps(student.model.schema, indent=1, ensure_ascii=False) + "\n"
        (folder / "schema.json").write_text(text, "utf-8")
