"""A teacher's distributions of tokens are learnt where its tokens are the base's, and as they are."""

import dataclasses
import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from gpu_runners.distill.causal.batch import make_batch
from gpu_runners.distill.causal.dataset import Example, encode, read_rows
from gpu_runners.distill.causal.net import CompletionNet, weight_of
from gpu_runners.distill.causal.soft_targets import SoftTargets, TokenTexts
from gpu_runners.distill.causal.train import distill_causal
from gpu_runners.errors import JobFailed
from gpu_runners.models.causal_base import CausalBase
from gpu_runners.models.chat import completion_ids, prompt_ids
from tests.gpu_runners.distill.causal.small_answers import SYSTEM, jsonl, make_job, rows, with_adapter
from tests.gpu_runners.distill.causal.test_exactness import batches_of, loss_and_gradients, net_on

ANSWER = '{"name": "tea"}'


def places_of(base: CausalBase, answer: str, *, end: bool = True) -> list[list[Any]]:
    """A teacher of the base's tokenizer, which was sure to nine tenths of each token."""
    ids = completion_ids(base, answer)
    texts = [base.tokenizer.backend_tokenizer.decode([i], skip_special_tokens=False) for i in ids]
    return [[text, {text: math.log(0.9), "a": math.log(0.06)}] for text in (texts if end else texts[:-1])]


def soft_rows(base: CausalBase, n: int) -> list[dict[str, Any]]:
    """Rows of which every third has no soft targets."""
    data = rows(n)
    return [row | ({"soft_targets": places_of(base, row["output"])} if i % 3 else {}) for i, row in enumerate(data)]


def soft_examples(base: CausalBase, n: int, weight: float) -> list[Example]:
    data = read_rows(jsonl(soft_rows(base, n)))
    return encode(data, base=base, system=SYSTEM, max_tokens=200, soft_weight=weight).examples


def dense(soft: SoftTargets, vocab_size: int) -> np.ndarray[Any, Any]:
    out = np.zeros((len(soft.ids), vocab_size))
    for at, (ids, probs) in enumerate(zip(soft.ids, soft.probs, strict=True)):
        np.add.at(out[at], ids, probs)
    return out


def test_a_character_has_its_own_token_where_a_byte_shows_as_it_too(small_base: CausalBase) -> None:
    from tokenizers import Tokenizer, decoders, models

    pieces = ["<s>", "<0x41>", "<0x42>", "<0xC3>", "A", "\u2581", "\u2581A"]
    tokenizer = Tokenizer(models.BPE(vocab={piece: i for i, piece in enumerate(pieces)}, merges=[], byte_fallback=True))
    tokenizer.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()])
    base = dataclasses.replace(
        small_base, tokenizer=SimpleNamespace(backend_tokenizer=tokenizer), vocab_size=len(pieces) + 2
    )
    assert TokenTexts.of(base).ids == {"<s>": 0, "B": 2, "A": 4, " ": 5, " A": 6}


def test_a_place_is_its_likeliest_renormalised_and_mixed_with_the_token(small_base: CausalBase) -> None:
    ids, places = completion_ids(small_base, ANSWER), [tuple(one) for one in places_of(small_base, ANSWER)]
    soft = TokenTexts.of(small_base).soft_targets(ids, places, weight=0.5)
    assert soft is not None
    (a,) = small_base.tokenizer("a", add_special_tokens=False)["input_ids"]
    for own, row in zip(ids, dense(soft, small_base.vocab_size), strict=True):
        assert row[own] == pytest.approx(0.5 + 0.5 * 0.9 / 0.96)
        assert row[a] == pytest.approx(0.5 * 0.06 / 0.96)
        assert row.sum() == pytest.approx(1.0)
    assert soft.ids[:, 0].tolist() == ids


def test_a_teacher_that_leaves_the_end_out_or_names_it_otherwise_teaches_it_as_it_is(small_base: CausalBase) -> None:
    ids, texts = completion_ids(small_base, ANSWER), TokenTexts.of(small_base)
    short = [tuple(one) for one in places_of(small_base, ANSWER, end=False)]
    for places in (short, [*short, ("</s>", {"</s>": -0.1, "a": -2.4})]):
        soft = texts.soft_targets(ids, places, weight=1.0)
        assert soft is not None
        assert soft.probs[-1].tolist() == [1.0, 0.0]
        assert soft.probs[0].tolist() == pytest.approx([0.9 / 0.96, 0.06 / 0.96])


def test_tokens_of_another_tokenizer_match_nothing(small_base: CausalBase) -> None:
    ids, texts = completion_ids(small_base, ANSWER), TokenTexts.of(small_base)
    good = [tuple(one) for one in places_of(small_base, ANSWER)]
    first, second = good[0][0], good[1][0]
    joined = [(first + second, {}), *good[2:]]
    moved = [(first + second[:1], {}), (second[1:], {}), *good[2:]]
    for places in (joined, moved, good[:-2], [*good, ("", {})], []):
        assert texts.soft_targets(ids, places, weight=1.0) is None


def test_a_place_whose_likeliest_are_mostly_no_tokens_of_the_base_is_its_token(small_base: CausalBase) -> None:
    ids, texts = completion_ids(small_base, ANSWER), TokenTexts.of(small_base)
    good = [tuple(one) for one in places_of(small_base, ANSWER)]
    strange = {good[0][0]: math.log(0.6), "no token at all": math.log(0.3), "\ufffd": math.log(0.1)}
    little = {good[1][0]: math.log(0.98), "\ufffd": math.log(0.02)}
    soft = texts.soft_targets(ids, [(good[0][0], strange), (good[1][0], little), *good[2:]], weight=1.0)
    assert soft is not None
    assert soft.probs[0].tolist() == [1.0, 0.0]
    assert soft.probs[1].tolist() == [1.0, 0.0], "what is left is renormalised"


def test_parts_of_a_character_match_and_are_learnt_as_they_are(small_base: CausalBase) -> None:
    answer = "ж tea"
    ids, places = completion_ids(small_base, answer), [tuple(one) for one in places_of(small_base, answer)]
    assert any("\ufffd" in text for text, _ in places)
    soft = TokenTexts.of(small_base).soft_targets(ids, places, weight=1.0)
    assert soft is not None
    for (text, _), row in zip(places, soft.probs.tolist(), strict=True):
        assert row[0] == (1.0 if "\ufffd" in text else pytest.approx(0.9 / 0.96))


def brute_force(net: CompletionNet, examples: list[Example], vocab_size: int) -> torch.Tensor:
    """Cross-entropy against whole distributions, one example at a time."""
    total, weight = torch.zeros(()), 0.0
    for example in examples:
        hard = dataclasses.replace(example, soft=None)
        batch = make_batch([[hard]], packed=False)
        log_probs = net.logits_of(net.states(batch)).log_softmax(dim=-1)
        if example.soft is None:
            target = torch.nn.functional.one_hot(batch.targets[:, 0], vocab_size).float()
        else:
            target = torch.from_numpy(dense(example.soft, vocab_size)).float()
        total = total - example.weight * (target * log_probs).sum()
        weight += weight_of(batch)
    return total / weight


@pytest.mark.parametrize("batching", ["shared_prefix", "packed", "bucketed", "padded"])
@pytest.mark.parametrize("weight", [0.5, 1.0])
def test_loss_and_gradients_are_those_against_whole_distributions(
    small_base: CausalBase, batching: str, weight: float
) -> None:
    examples, net = soft_examples(small_base, 9, weight), net_on(small_base)
    expected = brute_force(net, examples, small_base.vocab_size)
    expected.backward()
    gradients = {n: p.grad.clone() for n, p in net.named_parameters() if p.grad is not None}
    for parts in (1, 2):
        loss, mine = loss_and_gradients(net, batches_of(examples, batching, parts=parts))
        assert loss == pytest.approx(float(expected.detach()), rel=1e-5)
        for name, gradient in gradients.items():
            torch.testing.assert_close(mine[name], gradient, rtol=1e-3, atol=1e-5 * float(gradient.abs().max()) + 1e-8)


def test_logits_in_several_parts_give_the_same_loss(small_base: CausalBase, monkeypatch: pytest.MonkeyPatch) -> None:
    examples, net = soft_examples(small_base, 6, 0.5), net_on(small_base)
    whole = loss_and_gradients(net, batches_of(examples, "packed"))[0]
    monkeypatch.setattr("gpu_runners.distill.causal.net._LOGITS_AT_ONCE", 3 * small_base.vocab_size)
    assert loss_and_gradients(net, batches_of(examples, "packed"))[0] == pytest.approx(whole, rel=1e-6)


def test_a_training_on_tokens_alone_does_not_look_at_the_distributions(small_base: CausalBase) -> None:
    without, with_some = rows(24), soft_rows(small_base, 24)
    blobs = [
        distill_causal(make_job(small_base, epochs=1), jsonl(data), base=small_base) for data in (without, with_some)
    ]
    assert blobs[0][0] == blobs[1][0]
    assert blobs[1][1].active["soft_targets"] is None


def test_a_student_of_distributions_is_as_unsure_as_its_teacher(small_base: CausalBase, tmp_path: Path) -> None:
    """One answer, of whose first token the teacher was sure to 60 %: hard labels make the student sure."""
    first, *others = places_of(small_base, "false")
    (a,) = small_base.tokenizer("a", add_special_tokens=False)["input_ids"]
    unsure = [[first[0], {first[0]: math.log(0.6), "a": math.log(0.4)}], *([text, {text: 0.0}] for text, _ in others)]
    data = [row | {"output": "false", "soft_targets": unsure} for row in rows(24)]
    shares = {}
    for weight in (0.0, 1.0):
        job = make_job(small_base, epochs=8, rank=8, learning_rate=0.01, soft_weight=weight)
        blob, result = distill_causal(job, jsonl(data), base=small_base)
        shares[weight] = share_of_token(small_base, blob, result, a, tmp_path / str(weight))
        row = result.active["soft_targets"]
        assert row == (None if weight == 0.0 else {"weight": "1", "n_matched": 24, "n_unmatched": 0})
    assert shares[0.0] < 0.05
    assert shares[1.0] == pytest.approx(0.4, abs=0.05)


def share_of_token(base: CausalBase, blob: bytes, result: Any, token: int, folder: Path) -> float:
    """The probability that the adapter gives `token` as the first of its answer."""
    folder.mkdir()
    model = with_adapter(base, blob, result, folder)
    with torch.no_grad():
        ids = torch.tensor([prompt_ids(base, SYSTEM, rows(1)[0]["input"])])
        return float(model(ids).logits[0, -1].softmax(dim=-1)[token])


def test_rows_of_other_tokens_train_on_their_tokens_and_are_counted(small_base: CausalBase) -> None:
    data = [row | {"soft_targets": [["x", {"x": -0.1}]]} for row in rows(12)] + rows(24)[12:]
    result = distill_causal(make_job(small_base, epochs=1, soft_weight=0.5), jsonl(data), base=small_base)[1]
    assert result.active["soft_targets"] == {"weight": "0.5", "n_matched": 0, "n_unmatched": 12}


@pytest.mark.parametrize(
    "places",
    ["x", None, [["a"]], [["a", []]], [[1, {}]], [["a", {"a": 0.5}]], [["a", {"a": "0"}]], [["a", {"a": True}]]],
)
def test_what_is_no_token_with_log_probs_is_refused(places: object) -> None:
    line = json.dumps({"input": "a", "output": "b", "weight": 1.0, "soft_targets": places}).encode()
    with pytest.raises(JobFailed) as failure:
        read_rows(line)
    assert failure.value.code == "invalid_dataset"


def test_a_log_prob_that_is_no_number_is_refused() -> None:
    with pytest.raises(JobFailed):
        read_rows(b'{"input": "a", "output": "b", "weight": 1.0, "soft_targets": [["a", {"a": NaN}]]}')
