"""`kolm export --to peft`: PEFT loads the folder over the base and computes what the artifact computes."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from peft import PeftModel
from safetensors.numpy import load_file

from gpu_runners.artifacts.label_model import LabelModel
from gpu_runners.artifacts.loader import Loader, merged_model
from gpu_runners.artifacts.span_model import SpanModel
from gpu_runners.errors import ExportRefused
from gpu_runners.exports.to_peft import export_peft
from gpu_runners.models.causal_base import load_weights, open_causal_base
from gpu_runners.models.chat import prompt_ids
from gpu_runners.models.encoder import load_body, pool
from gpu_runners.models.spans.tokens import Window
from tests.gpu_runners.exports.students import original_of, random_label_kolm, random_span_kolm, random_text_kolm
from tests.gpu_runners.small_spans import TrainedSpans, span_kolm, span_pairs
from tests.gpu_runners.small_task import Trained, kolm_of, task_rows
from tests.tiny_bases import TINY, tiny_bases  # noqa: F401

pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")  # PEFT's own call
INPUTS = [row["input"] for row in task_rows(5, start=50)]


def label_logits(folder: Path, model: LabelModel, body: Any) -> Any:
    """Logits by PEFT and the two files of the head, as docs/exports.md computes them."""
    adapted = PeftModel.from_pretrained(body, folder).eval()
    head, described = load_file(folder / "head.safetensors"), json.loads((folder / "head.json").read_text())
    rows = []
    for ids in model.tokenizer.ids(INPUTS):
        mask = torch.ones(1, len(ids), dtype=torch.int64)
        with torch.inference_mode():
            hidden = adapted(input_ids=torch.tensor([ids]), attention_mask=mask).last_hidden_state
        unit = torch.nn.functional.normalize(pool(hidden, mask, described["pooling"]), dim=-1).numpy()
        rows.append(described["scale"] * unit @ head["weight"].T + head["bias"])
    return np.concatenate(rows)


@pytest.mark.parametrize("kind", ["trained", "bert", "modernbert"])
def test_a_label_adapter_gives_the_logits_of_the_artifact(trained: Trained, tmp_path: Path, kind: str) -> None:
    data = kolm_of(trained) if kind == "trained" else random_label_kolm(tmp_path, kind, "mean")
    original = original_of(data)
    export_peft(original, tmp_path / "out", base_dir=tmp_path)
    loader = Loader(keyring=None, base_dir=tmp_path)
    model = loader.model_of(original.kolm)
    assert isinstance(model, LabelModel)
    base, _ = loader.base(original.kolm.manifest["base"]["id"])
    ours = label_logits(tmp_path / "out", model, load_body(base))
    wanted = model.engine.logits(model.tokenizer.ids(INPUTS))
    assert np.abs(ours - wanted).max() < 1e-4
    assert json.loads((tmp_path / "out" / "head.json").read_text())["labels"] == model.labels


def span_logits(folder: Path, window: Window, adapted: Any) -> dict[str, Any]:
    """Logits by PEFT and the two files of the heads, as docs/exports.md computes them."""
    heads, described = load_file(folder / "heads.safetensors"), json.loads((folder / "heads.json").read_text())
    ids = torch.tensor([window.ids])
    mask = torch.ones_like(ids)
    with torch.inference_mode():
        words = adapted.get_input_embeddings()(ids) + torch.from_numpy(heads["kinds"])[list(window.kinds)]
        hidden = adapted(inputs_embeds=words, attention_mask=mask).last_hidden_state
    unit = torch.nn.functional.normalize(pool(hidden, mask, described["pooling"]), dim=-1)[0].numpy()
    rows = dict.fromkeys(described["tokens"], hidden[0].numpy())
    rows |= dict.fromkeys(described["classes"], described["scale"] * unit)
    return {name: row @ heads[f"{name}.weight"].T + heads[f"{name}.bias"] for name, row in rows.items()}


@pytest.mark.parametrize("kind", ["trained", "bert", "modernbert"])
def test_a_span_adapter_gives_the_logits_of_the_artifact(
    trained_spans: TrainedSpans, tmp_path: Path, kind: str
) -> None:
    data = span_kolm(trained_spans) if kind == "trained" else random_span_kolm(tmp_path, kind)
    original, out = original_of(data), tmp_path / "out"
    export_peft(original, out, base_dir=tmp_path)
    loader = Loader(keyring=None, base_dir=tmp_path)
    model = loader.model_of(original.kolm)
    assert isinstance(model, SpanModel)
    base, _ = loader.base(original.kolm.manifest["base"]["id"])
    adapted = PeftModel.from_pretrained(load_body(base), out).eval()
    reading = json.loads((out / "export.json").read_text())["reading"]
    tokens = [one for one in model.tokenizer.read([text for text, _ in span_pairs(30)]) if len(one.windows) == 1]
    for one, wanted in zip(tokens, model.forward.logits(tokens), strict=True):
        (window,) = one.windows
        ours = span_logits(out, window, adapted)
        assert ours.keys() == wanted.keys()
        own = slice(len(reading["before"]), len(window.ids) - len(reading["after"]))
        ours |= {name: value[own] for name, value in ours.items() if value.ndim == 2}
        assert max(np.abs(ours[name] - wanted[name]).max() for name in wanted) < 1e-4
    assert len(tokens) > 10
    assert (out / "extraction.json").read_bytes() == original.kolm.members["extraction.json"]


def test_a_student_without_an_adapter_is_refused_with_what_to_use(tmp_path: Path) -> None:
    original = original_of(random_label_kolm(tmp_path, "bert", "mean", lora=False))
    with pytest.raises(ExportRefused, match="--to onnx"):
        export_peft(original, tmp_path / "out", base_dir=tmp_path)


@pytest.mark.parametrize("variant", ["lora", "rslora", "dora"])
def test_a_causal_adapter_writes_the_text_of_the_artifact(
    tiny_bases: Path,  # noqa: F811
    tmp_path: Path,
    variant: str,
) -> None:
    base = open_causal_base(TINY, base_dir=tiny_bases)
    original = original_of(random_text_kolm(base, variant=variant))
    export_peft(original, tmp_path / "out", base_dir=tiny_bases)
    wanted = merged_model(original.kolm, base_dir=tiny_bases).predict(INPUTS)
    model: Any = PeftModel.from_pretrained(load_weights(base), tmp_path / "out").eval()
    prompt = json.loads((tmp_path / "out" / "prompt.json").read_text())
    for text, answer in zip(INPUTS, wanted, strict=True):
        ids = prompt_ids(base, prompt["system"], text)
        with torch.inference_mode():
            out = model.generate(
                input_ids=torch.tensor([ids]),
                attention_mask=torch.ones(1, len(ids), dtype=torch.int64),
                max_new_tokens=prompt["max_new_tokens"],
                do_sample=False,
                eos_token_id=list(base.eos_ids),
                pad_token_id=base.pad_id,
            )[0, len(ids) :]
        assert base.tokenizer.decode(out, skip_special_tokens=True) == answer["output"]
