"""A label student over an encoder, opened for its export: merged weights, its adapter by itself, how it reads texts."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from tokenizers import Tokenizer

from backend.domain.artifact.kolm_verify import Kolm
from backend.domain.encoders.sentence_settings import Pooling
from gpu_runners.artifacts.label_model import LabelModel, read_json
from gpu_runners.artifacts.loader import check_base_digest
from gpu_runners.errors import ExportRefused
from gpu_runners.models.bases import Base, open_base
from gpu_runners.models.causal_adapter import is_causal
from gpu_runners.models.encoder_runtimes import NumpyEngine, load_runtime
from gpu_runners.models.encoder_tokens import TextTokenizer, read_config
from gpu_runners.models.label_adapter import Adapter, AdapterConfig, from_bytes
from gpu_runners.models.numpy_bert import NumpyBert


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The way from a text to token ids: `prefix` stands before the text, `before` and `after` are the special tokens
    around it, and no row is longer than `max_length`, its special tokens included."""

    prefix: str
    max_length: int
    before: tuple[int, ...]
    after: tuple[int, ...]

    @classmethod
    def of(cls, tokenizer: TextTokenizer, prefix: str) -> Self:
        rows = Tokenizer.from_str(tokenizer.to_json())
        whole, bare = (rows.encode("a", add_special_tokens=special).ids for special in (True, False))
        start = next(i for i in range(len(whole)) if whole[i : i + len(bare)] == bare)
        end = start + len(bare)
        return cls(prefix=prefix, max_length=tokenizer.cut, before=tuple(whole[:start]), after=tuple(whole[end:]))

    def to_json(self) -> dict[str, Any]:
        around = {"before": list(self.before), "after": list(self.after)}
        return {"prefix": self.prefix, "max_length": self.max_length, **around}


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelStudent:
    """`adapter` and `config` are the artifact's own; `model` answers as `kolm run` does."""

    base: Base
    adapter: Adapter
    config: AdapterConfig
    model: LabelModel

    @property
    def pooling(self) -> Pooling:
        return Pooling(self.config.pooling)

    @property
    def reading(self) -> Reading:
        return Reading.of(self.model.tokenizer, self.config.prefix)

    def tokenizer_json(self) -> str:
        """The base's tokenizer.json, cutting where this student cuts."""
        return self.model.tokenizer.to_json()

    def merged_bert(self) -> NumpyBert:
        """The base with the adapter in its weights. Raises ExportRefused for another architecture than BERT's and
        RoBERTa's."""
        engine = self.model.engine
        if not isinstance(engine, NumpyEngine):
            kind = read_config(self.base).get("model_type")
            raise ExportRefused(
                f"The base {self.base.name!r} is of the kind {kind!r}, and this export is made for BERT and RoBERTa "
                "encoders: use --to peft or --to sentence-transformers."
            )
        return engine.bert


def open_label_student(kolm: Kolm, *, base_dir: Path | None) -> LabelStudent:
    """Open the student of a verified artifact. Raises ExportRefused for one that is no label student over an encoder,
    JobFailed."""
    kind = kolm.manifest["task_type"]
    if is_causal(kolm.members) or kind != "label":
        raise ExportRefused(
            f"The artifact answers its {kind} task with a causal model, and this export is made for label students "
            "over an encoder: use --to peft or --to gguf."
        )
    wanted = kolm.manifest["base"]
    base = open_base(wanted["id"], base_dir=base_dir)
    check_base_digest(wanted, base)
    return LabelStudent(
        base=base,
        adapter=from_bytes(kolm.members["adapter.safetensors"]),
        config=AdapterConfig.from_json(read_json(kolm.members, "adapter_config.json")),
        model=LabelModel.from_members(kolm.members, base=base, runtime=load_runtime(base)),
    )
