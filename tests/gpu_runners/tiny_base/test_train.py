"""A base of a few steps: files, sameness, the lock. What kolm-tiny-1 learns: the benches."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from gpu_runners.models.bases import open_base
from gpu_runners.models.causal_base import load_weights, open_causal_base
from gpu_runners.models.chat import prompt_ids
from gpu_runners.tiny_base import train as training
from gpu_runners.tiny_base.train import NAME, SHIPPED, STAMP, Recipe, ensure, source_sha256

SMALL = Recipe(steps=3, step_tokens=256, tokenizer_chats=60)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return ensure(tmp_path_factory.mktemp("bases"), recipe=SMALL)


def test_a_base_opens_answers_and_knows_its_end(made: Path) -> None:
    base = open_causal_base(NAME, base_dir=made.parent)
    assert base.eos_ids == (base.tokenizer.convert_tokens_to_ids("<|end|>"),)
    assert base.context == SMALL.context
    import torch

    ids = prompt_ids(base, "Answer with JSON alone that has these fields: name", "this is Ben")
    logits = load_weights(base)(input_ids=torch.tensor([ids]), use_cache=False).logits
    assert logits.shape == (1, len(ids), base.vocab_size)


def test_the_same_recipe_gives_the_same_bytes(made: Path, tmp_path: Path) -> None:
    again = ensure(tmp_path, recipe=SMALL)
    for name in ("model.safetensors", "tokenizer.json", "config.json"):
        assert (again / name).read_bytes() == (made / name).read_bytes()


def test_a_base_that_is_there_is_not_trained_again(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "train", lambda *args, **kwargs: pytest.fail("trained again"))
    assert ensure(made.parent, recipe=SMALL) == made


def test_a_base_of_another_source_is_replaced(made: Path, tmp_path: Path) -> None:
    old = ensure(tmp_path, recipe=replace(SMALL, steps=1))
    before = (old / "model.safetensors").read_bytes()
    assert (ensure(tmp_path, recipe=SMALL) / "model.safetensors").read_bytes() != before
    assert sorted(p.name for p in tmp_path.iterdir()) == [f".{NAME}.lock", NAME]


def test_copying_is_planted_before_anything_is_learnt() -> None:
    """About two thirds of the tokens of a repeated random text are right from the start; by chance it is 1 in 1024."""
    import torch

    torch.manual_seed(1)
    model = training._new_model(SMALL, _Vocabulary())
    text = torch.randint(8, 1024, (8, 40))
    ids = torch.cat([text, text], dim=1)
    with torch.no_grad():
        guess = model(input_ids=ids, use_cache=False).logits.argmax(-1)
    right = (guess[:, 41:-1] == ids[:, 42:]).float().mean()
    assert right > 0.4


def test_what_is_shipped_is_of_this_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever changes the package trains again: `make base-anew`, a quarter of an hour."""
    assert json.loads((SHIPPED / STAMP).read_text())["source_sha256"] == source_sha256(Recipe())
    monkeypatch.setattr(training, "train", lambda *args, **kwargs: pytest.fail("trained"))
    made = ensure(tmp_path)
    assert (made / "model.safetensors").read_bytes() == (SHIPPED / "model.safetensors").read_bytes()


class _Vocabulary:
    eos_token_id, pad_token_id = 0, 1

    def __len__(self) -> int:
        return 1024


def test_what_is_shipped_is_found_by_its_name_without_any_setting() -> None:
    assert open_base(NAME).folder.samefile(SHIPPED)
