"""A student's own answers are learnt by their divergence from the teacher's distributions, and by nothing else."""

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from backend.domain.jobs.causal_jobs import StudentSampling
from gpu_runners.agent.jobs import distill_causal_files
from gpu_runners.distill.causal.batch import make_batch
from gpu_runners.distill.causal.dataset import Example, encode, read_rows
from gpu_runners.distill.causal.divergences import Divergence, divergence_of
from gpu_runners.distill.causal.net import CompletionNet
from gpu_runners.distill.causal.train import distill_causal
from gpu_runners.errors import JobFailed
from gpu_runners.models.causal_base import CausalBase
from tests.gpu_runners.distill.causal.small_answers import SYSTEM, jsonl, make_job, rows
from tests.gpu_runners.distill.causal.test_exactness import batches_of, loss_and_gradients, net_on
from tests.gpu_runners.distill.causal.test_soft_targets import dense, places_of, share_of_token


def own_rows(base: CausalBase, n: int) -> list[dict[str, Any]]:
    """Rows of which two thirds are the student's own answers; the first place of each is not told."""
    data = []
    for i, row in enumerate(rows(n)):
        places = places_of(base, row["output"])
        places[0][1] = {}
        data.append(row | ({"soft_targets": places, "on_policy": True} if i % 3 else {}))
    return data


def own_examples(base: CausalBase, n: int) -> list[Example]:
    return encode(read_rows(jsonl(own_rows(base, n))), base=base, system=SYSTEM, max_tokens=200).examples


def spelt_out(p: torch.Tensor, q: torch.Tensor, kind: Divergence) -> torch.Tensor:
    def kl(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.special.xlogy(a, a / b).nan_to_num().sum()

    if kind is Divergence.FORWARD_KL:
        return kl(p, q)
    if kind is Divergence.REVERSE_KL:
        return kl(q, p)
    return (kl(p, (p + q) / 2) + kl(q, (p + q) / 2)) / 2


@pytest.mark.parametrize("kind", Divergence)
def test_a_divergence_is_that_of_the_likeliest_and_all_others_as_one(kind: Divergence) -> None:
    torch.manual_seed(0)
    p, q = (torch.randn(12).softmax(dim=0).double() for _ in range(2))
    likeliest = p.topk(4).indices
    coarse = [torch.cat([one[likeliest], 1 - one[likeliest].sum()[None]]) for one in (p, q)]
    padded = torch.cat([p[likeliest], torch.zeros(3, dtype=torch.float64)])[None]
    student = torch.cat([q[likeliest].log(), torch.full((3,), -0.1, dtype=torch.float64)])[None]
    mine = float(divergence_of(padded, student, kind=kind))
    assert mine == pytest.approx(float(spelt_out(*coarse, kind)), rel=1e-6)
    assert 0 < mine <= float(spelt_out(p, q, kind))


@pytest.mark.parametrize("kind", Divergence)
def test_a_student_that_agrees_is_at_no_divergence_and_at_rest(kind: Divergence) -> None:
    logits = torch.tensor([[2.0, 1.0, 0.5, -30.0, -40.0]], requires_grad=True)
    probs = logits.detach().softmax(dim=-1)[:, :3]
    apart = divergence_of(probs, logits.log_softmax(dim=-1)[:, :3], kind=kind)
    apart.sum().backward()
    assert float(apart.detach()) == pytest.approx(0.0, abs=1e-5)
    assert float(logits.grad.abs().max()) < 1e-5  # type: ignore[union-attr]


def brute_force(net: CompletionNet, examples: list[Example], vocab_size: int) -> torch.Tensor:
    """One example at a time: hard labels of pairs, divergences over whole vocabularies of the student's own."""
    total, weight = torch.zeros(()), 0.0
    for example in examples:
        batch = make_batch([[dataclasses.replace(example, soft=None, on_policy=False)]], packed=False)
        log_probs = net.logits_of(net.states(batch)).log_softmax(dim=-1)
        if example.soft is None:
            losses = -log_probs.gather(1, batch.targets)[:, 0]
        else:
            losses = torch.stack(
                [_apart(p, q) for p, q in zip(dense(example.soft, vocab_size), log_probs, strict=True)]
            )
        total = total + example.weight * losses.sum()
        weight += example.weight * example.n_learnt
    return total / weight


def _apart(p: Any, log_q: torch.Tensor) -> torch.Tensor:
    there = torch.from_numpy(p > 0)
    if not there.any():
        return log_q.sum() * 0
    known = torch.from_numpy(p)[there].float()
    q = log_q.exp()[there]
    return spelt_out(torch.cat([known, 1 - known.sum()[None]]), torch.cat([q, 1 - q.sum()[None]]), Divergence.JSD)


@pytest.mark.parametrize("batching", ["shared_prefix", "packed", "bucketed", "padded"])
def test_loss_and_gradients_are_the_same_in_every_layout(small_base: CausalBase, batching: str) -> None:
    examples, net = own_examples(small_base, 9), net_on(small_base)
    expected = brute_force(net, examples, small_base.vocab_size)
    expected.backward()
    gradients = {n: p.grad.clone() for n, p in net.named_parameters() if p.grad is not None}
    for parts in (1, 2):
        loss, mine = loss_and_gradients(net, batches_of(examples, batching, parts=parts))
        assert loss == pytest.approx(float(expected.detach()), rel=1e-4)
        for name, gradient in gradients.items():
            torch.testing.assert_close(mine[name], gradient, rtol=1e-2, atol=1e-4 * float(gradient.abs().max()) + 1e-7)


@pytest.mark.parametrize("kind", Divergence)
def test_a_student_unlearns_its_own_mistakes(small_base: CausalBase, tmp_path: Path, kind: Divergence) -> None:
    """The student writes "false" and seldom "a"; the teacher says of its first token that "a" is likelier. The token
    that was written is nobody's target."""
    (a,) = small_base.tokenizer("a", add_special_tokens=False)["input_ids"]
    pairs = [row | {"output": "false"} for row in rows(24)]
    seldom, likelier = (first_place(places_of(small_base, "false"), a=share) for share in (0.1, 0.8))
    options = {"epochs": 8, "rank": 8, "learning_rate": 0.01}
    taught = jsonl([row | {"soft_targets": seldom} for row in pairs])
    blob, result = distill_causal(make_job(small_base, soft_weight=1.0, **options), taught, base=small_base)
    before = share_of_token(small_base, blob, result, a, tmp_path / "before")
    own = jsonl([row | {"soft_targets": likelier, "on_policy": True} for row in pairs])
    job = dataclasses.replace(make_job(small_base, divergence=kind, **options), start_config=result.adapter_config)
    after_blob, after = distill_causal(job, own, base=small_base, start=blob)
    share = share_of_token(small_base, after_blob, after, a, tmp_path / "after")
    assert before == pytest.approx(0.1, abs=0.05)
    assert share > 0.6
    assert after.active["on_policy"] == {"divergence": str(kind), "n_answers": 24, "n_unmatched": 0}
    assert after.active["soft_targets"] is None


def first_place(places: list[list[Any]], *, a: float) -> list[list[Any]]:
    """The places, of which the first is "a" at this share; the others are sure."""
    (first, _), *others = places
    return [[first, {first: math.log(1 - a), "a": math.log(a)}], *([text, {text: -1e-3}] for text, _ in others)]


def test_a_training_goes_on_from_the_adapter_that_it_is_given(small_base: CausalBase) -> None:
    job = make_job(small_base, epochs=1, learning_rate=1e-9, warmup_share=0.9)
    blob, result = distill_causal(make_job(small_base, epochs=3), jsonl(rows()), base=small_base)
    again = dataclasses.replace(job, start_config=result.adapter_config)
    assert distill_causal(again, jsonl(rows()), base=small_base, start=blob)[0] == blob
    other = dataclasses.replace(again, options=again.options | {"rank": 4})
    with pytest.raises(JobFailed) as failure:
        distill_causal(other, jsonl(rows()), base=small_base, start=blob)
    assert failure.value.code == "invalid_adapter"


def test_answers_in_a_strangers_tokens_are_left_out_and_a_job_of_them_alone_is_refused(small_base: CausalBase) -> None:
    strange = {"soft_targets": [["x", {"x": -0.1}]], "on_policy": True}
    data = [rows(24)[0] | strange, *own_rows(small_base, 24)[1:]]
    encoded = encode(read_rows(jsonl(data)), base=small_base, system=SYSTEM, max_tokens=200)
    assert (len(encoded.examples), encoded.n_own_unmatched, encoded.n_too_long) == (23, 1, 0)
    with pytest.raises(JobFailed) as failure:
        distill_causal(make_job(small_base), jsonl([row | strange for row in rows()]), base=small_base)
    assert failure.value.code == "tokenizers_differ"


def test_patches_and_own_answers_do_not_go_together(small_base: CausalBase) -> None:
    job = make_job(small_base, patch_size=2, patch_share=0.5)
    with pytest.raises(JobFailed) as failure:
        distill_causal(job, jsonl(own_rows(small_base, 24)), base=small_base)
    assert failure.value.code == "invalid_options"


def test_own_answers_without_the_teachers_distributions_are_refused() -> None:
    with pytest.raises(JobFailed) as failure:
        read_rows(b'{"input": "a", "output": "b", "weight": 1.0, "on_policy": true}')
    assert failure.value.code == "invalid_dataset"


def test_a_job_leaves_the_students_own_answers_beside_its_adapter(small_base: CausalBase, tmp_path: Path) -> None:
    class Line:
        sent_s: float | None = 0.0

    texts = [row["input"] for row in rows(6)]
    (tmp_path / "dataset").write_bytes(jsonl(rows()))
    (tmp_path / "sampled").write_bytes(jsonl([{"input": text} for text in texts]))
    sampling = StudentSampling(answer={"type": "text"}, max_new_tokens=8)
    job = dataclasses.replace(make_job(small_base, epochs=8, learning_rate=0.01), sampling=sampling.to_json())
    made = [
        distill_causal_files(
            job,
            folder=tmp_path,
            base_dir=small_base.folder.parent,
            emit=lambda event: None,
            should_stop=lambda: False,
            line=Line(),
        )
        for _ in range(2)
    ]
    assert made[0]["result"]["samples_sha256"] == made[1]["result"]["samples_sha256"], "drawn by a seed of its own"
    result = made[0]["result"]
    samples = [json.loads(line) for line in (tmp_path / "samples").read_text("utf-8").splitlines()]
    assert made[0]["blobs"] == [str(tmp_path / "adapter"), str(tmp_path / "samples")]
    assert [one["input"] for one in samples] == [text for text in texts if text in {one["input"] for one in samples}]
    assert all(one["output"].strip() for one in samples)
    assert result["n_read"] > result["n_written"] > 0
