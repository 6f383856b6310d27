"""Causal bases as they lie in folders: in one file and in shards, with the end of turn of their template, and those
that are not what they say."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.numpy import load_file, save_file

from gpu_runners.errors import JobFailed
from gpu_runners.models.causal_base import CausalBase, load_weights, open_causal_base
from gpu_runners.models.chat import completion_ids, prompt_ids
from tests.gpu_runners.small_base import make_base, make_sharded, with_tokens_beyond

GEMMA = (
    "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}<|system|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


@pytest.fixture(scope="module")
def sharded(tmp_path_factory: pytest.TempPathFactory) -> CausalBase:
    return make_sharded(tmp_path_factory.mktemp("sharded") / "small")


@pytest.fixture
def copy(sharded: CausalBase, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sharded.folder, tmp_path / "small"))


def opened(folder: Path) -> CausalBase:
    return open_causal_base(folder.name, base_dir=folder.parent)


def refusal(folder: Path) -> str:
    with pytest.raises(JobFailed) as caught:
        load_weights(opened(folder))
    return caught.value.code


def change(file: Path, **changes: object) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def test_shards_are_the_weights_of_the_single_file(sharded: CausalBase, tmp_path: Path) -> None:
    whole = make_base(tmp_path / "small", kind="qwen2")
    ids = torch.tensor([[1, 5, 9, 20]])
    with torch.no_grad():
        one, other = (load_weights(base)(ids).logits for base in (whole, sharded))
    assert torch.equal(one, other)
    assert whole.sha256 != sharded.sha256


def test_the_end_of_turn_is_learnt_before_the_tokenizers_own_end(copy: Path) -> None:
    """As Gemma's: its tokenizer's eos is `<eos>`, its turns end with another token."""
    (copy / "chat_template.jinja").write_text(GEMMA)
    base = opened(copy)
    end, eos = base.tokenizer.convert_tokens_to_ids(["<|system|>", "<|end|>"])
    assert base.eos_ids == (end, eos)
    assert completion_ids(base, "yes")[-1] == end


def test_every_end_of_the_generation_config_stops_an_answer(copy: Path) -> None:
    change(copy / "generation_config.json", eos_token_id=[3, 0, 7])
    assert opened(copy).eos_ids == (0, 3, 7)


def test_only_ends_that_the_weights_have_a_row_for_stop_an_answer(copy: Path) -> None:
    change(copy / "generation_config.json", eos_token_id=[3, 0, 99_999])
    assert opened(copy).eos_ids == (0, 3)


def test_a_token_without_a_row_is_a_base_that_does_not_fit_its_tokenizer(copy: Path) -> None:
    """ChatML written over a base whose weights were never resized."""
    template = (copy / "chat_template.jinja").read_text()
    base = with_tokens_beyond(opened(copy), bos_token="<|im_start|>")
    (copy / "chat_template.jinja").write_text("<|im_start|>" + template)
    with pytest.raises(JobFailed, match=r"im_start.*no row") as caught:
        prompt_ids(opened(copy), "", "yes")
    assert caught.value.code == "bad_chat"
    assert prompt_ids(base, "", "<|im_start|>"), "a text that spells it is made of other tokens"
    (copy / "chat_template.jinja").write_text(template.replace("<|end|>", "<|im_start|>"))
    with pytest.raises(JobFailed, match=r"im_start.*no row") as caught:
        opened(copy)
    assert caught.value.code == "not_causal"


def test_a_template_in_the_processors_old_file_is_read(copy: Path) -> None:
    text = (copy / "chat_template.jinja").read_text()
    (copy / "chat_template.jinja").unlink()
    (copy / "chat_template.json").write_text(json.dumps({"chat_template": text}))
    assert opened(copy).tokenizer.chat_template == text


def _cut(folder: Path) -> None:
    shard = max(folder.glob("model-*"))
    shard.write_bytes(shard.read_bytes()[:-10])


def _lose_a_tensor(folder: Path) -> None:
    """From its shard and from the index: the config alone says that it should be there."""
    index = folder / "model.safetensors.index.json"
    names = json.loads(index.read_text())["weight_map"]
    lost = next(name for name in names if name.endswith("layers.1.mlp.up_proj.weight"))
    shard = folder / names.pop(lost)
    save_file({key: value for key, value in load_file(shard).items() if key != lost}, shard, metadata={"format": "pt"})
    change(index, weight_map=names)


@pytest.mark.parametrize(
    ("damage", "code"),
    [
        (lambda folder: max(folder.glob("model-*")).unlink(), "base_truncated"),
        (_cut, "base_truncated"),
        (lambda folder: max(folder.glob("model-*")).write_bytes(b"\xff" * 40), "base_truncated"),
        (lambda folder: max(folder.glob("model-*")).write_bytes(b""), "base_truncated"),
        (lambda folder: (folder / "config.json").write_text('{"model_type": "qw'), "base_truncated"),
        (lambda folder: (folder / "generation_config.json").write_text("[]"), "base_truncated"),
        (lambda folder: change(folder / "generation_config.json", eos_token_id="<|end|>"), "not_causal"),
        (lambda folder: change(folder / "config.json", hidden_size=None, n_embd=64), "unsupported_base"),
        (lambda folder: change(folder / "config.json", max_position_embeddings="many"), "base_wrong_architecture"),
        (lambda folder: change(folder / "config.json", num_attention_heads="four"), "base_wrong_architecture"),
        (lambda folder: change(folder / "config.json", num_attention_heads=0), "base_wrong_architecture"),
        (lambda folder: change(folder / "config.json", hidden_act="never-heard-of"), "base_wrong_architecture"),
        (_lose_a_tensor, "base_wrong_architecture"),
        (lambda folder: change(folder / "config.json", intermediate_size=200), "base_wrong_architecture"),
        (lambda folder: change(folder / "config.json", model_type="never-heard-of"), "base_wrong_architecture"),
        (lambda folder: change(folder / "config.json", architectures=["BertModel"]), "not_causal"),
        (lambda folder: (folder / "tokenizer.json").unlink(), "base_without_tokenizer"),
        (lambda folder: (folder / "tokenizer.json").write_text("{}"), "base_without_tokenizer"),
        (lambda folder: (folder / "chat_template.jinja").unlink(), "not_causal"),
        (lambda folder: (folder / "chat_template.jinja").write_text("{% if %}"), "not_causal"),
        (lambda folder: (folder / "config.json").unlink(), "unknown_base"),
        (
            lambda folder: change(folder / "config.json", model_type="own", auto_map={"A": "b.C"}),
            "base_needs_remote_code",
        ),
    ],
)
def test_a_base_that_is_not_what_it_says_is_refused_by_name(
    copy: Path, damage: Callable[[Path], object], code: str
) -> None:
    damage(copy)
    assert refusal(copy) == code


def test_a_base_that_several_names_could_mean_is_found_by_its_whole_name(copy: Path) -> None:
    (copy.parent / "owner").mkdir()
    pinned = copy.rename(copy.parent / "owner" / "small@v1")
    assert open_causal_base("owner/small@v1", base_dir=pinned.parent.parent).folder == pinned
