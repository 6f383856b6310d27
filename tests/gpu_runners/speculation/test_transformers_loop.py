"""Our verify loop inside transformers' `generate`, against `generate` alone, with good, bad and absurd drafts."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
import torch

from gpu_runners.models.causal_base import CausalBase, load_weights
from gpu_runners.models.protocol import DraftKind
from gpu_runners.speculation.controller import Controller
from gpu_runners.speculation.drafter import Drafter
from gpu_runners.speculation.step_costs import StepCosts
from gpu_runners.speculation.transformers_loop import DraftingLoop
from tests.gpu_runners.small_base import make_base
from tests.gpu_runners.speculation.small_sources import Told

TEXTS = ("the order of tea", "costs 3", 'coffee {"name": "', "漢字 ü")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> CausalBase:
    return make_base(tmp_path_factory.mktemp("bases") / "small-llama")


@pytest.fixture(scope="module")
def model(base: CausalBase) -> Any:
    return load_weights(base)


def loop_of(answer: Sequence[int]) -> DraftingLoop:
    controller = Controller(StepCosts(), is_gated=False)
    return DraftingLoop(Drafter([Told(DraftKind.PACK, answer)], controller, max_draft=8, matcher=None))


def answers(base: CausalBase, model: Any, text: str, loop: DraftingLoop | None, **more: Any) -> list[int]:
    ids = torch.tensor([base.tokenizer(text)["input_ids"]])
    drafting = {} if loop is None else {"custom_generate": loop}
    out = model.generate(ids, pad_token_id=0, **({"do_sample": False, "max_new_tokens": 24} | more), **drafting)
    return [int(token) for token in out[0, ids.shape[1] :]]


@pytest.mark.parametrize("text", TEXTS)
def test_a_right_draft_saves_passes_and_changes_nothing(base: CausalBase, model: Any, text: str) -> None:
    plain = answers(base, model, text, None)
    loop = loop_of(plain)
    assert answers(base, model, text, loop) == plain
    assert loop.n_steps <= 1 + -(-len(plain) // 9)


@pytest.mark.parametrize("text", TEXTS)
def test_a_wrong_draft_changes_nothing(base: CausalBase, model: Any, text: str) -> None:
    plain = answers(base, model, text, None)
    half = [token if i % 3 else token + 1 for i, token in enumerate(plain)]
    for drafted in ([7] * 40, half, [*plain[:-1], 7, 7, 7]):
        assert answers(base, model, text, loop_of(drafted)) == plain


def test_an_answer_ends_at_its_limit_and_at_an_end_inside_a_draft(base: CausalBase, model: Any) -> None:
    plain = answers(base, model, TEXTS[0], None)
    for limit in (1, 2, 5):
        assert answers(base, model, TEXTS[0], loop_of(plain), max_new_tokens=limit) == plain[:limit]
    end = plain[6]
    cut = plain[: plain.index(end) + 1]
    assert answers(base, model, TEXTS[0], loop_of(plain), eos_token_id=end) == cut


def test_logits_processors_see_what_was_kept_before_each_place(base: CausalBase, model: Any) -> None:
    more = {"repetition_penalty": 1.7, "no_repeat_ngram_size": 2}
    plain = answers(base, model, TEXTS[1], None, **more)
    assert plain != answers(base, model, TEXTS[1], None)
    assert answers(base, model, TEXTS[1], loop_of(plain), **more) == plain


def test_sampled_tokens_follow_the_model(base: CausalBase, model: Any) -> None:
    """The second token of 240 answers, where the first one was drafted rightly: chi-square over three tokens."""
    first = answers(base, model, TEXTS[0], None, max_new_tokens=1)[0]
    ids = torch.tensor([[*base.tokenizer(TEXTS[0])["input_ids"], first]])
    with torch.inference_mode():
        best, tokens = torch.topk(model(ids).logits[0, -1].float() / 3, 3)
    p = dict(zip(tokens.tolist(), torch.softmax(best, dim=-1).tolist(), strict=True))
    drafted = [first, min(p, key=lambda token: p[token]), 5]
    torch.manual_seed(3)
    more = {"max_new_tokens": 2, "do_sample": True, "temperature": 3.0, "top_k": 3}
    said = [answers(base, model, TEXTS[0], loop_of(drafted), **more) for _ in range(240)]
    seen = Counter(second for one, second in said if one == first)
    n = sum(seen.values())
    assert n > 60
    assert set(seen) == set(p)
    assert sum((seen[token] - n * share) ** 2 / (n * share) for token, share in p.items()) < 13.8  # 0.1 % for 2 df


def test_two_prompts_are_refused(base: CausalBase, model: Any) -> None:
    with pytest.raises(ValueError, match="one prompt at a time"):
        model.generate(torch.tensor([[1, 2], [3, 4]]), custom_generate=loop_of([1]), max_new_tokens=4, pad_token_id=0)
