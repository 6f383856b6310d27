"""However a step is laid out, it computes what its examples compute alone: outputs, loss and gradients."""

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor

from backend.domain.jobs.causal_jobs import CausalOptions
from gpu_runners.distill.causal.batch import IGNORED, Batch, common_prefix, make_batch, n_positions, units
from gpu_runners.distill.causal.dataset import Example, encode, read_rows
from gpu_runners.distill.causal.loading import with_lora
from gpu_runners.distill.causal.net import CompletionNet, weight_of
from gpu_runners.distill.causal.packing import lay_out
from gpu_runners.distill.causal.selfcheck import TOLERANCE, _apart, check
from gpu_runners.models.causal_base import CausalBase, load_weights
from gpu_runners.models.device import Capabilities, Choice, ModelSize, choose
from tests.gpu_runners.distill.causal.small_answers import SYSTEM, jsonl, rows

OPTIONS = CausalOptions(rank=4)


@pytest.fixture(scope="module")
def examples(small_base: CausalBase) -> list[Example]:
    return encode(read_rows(jsonl(rows(9))), base=small_base, system=SYSTEM, max_tokens=200).examples


def net_on(base: CausalBase, *, attention: str = "sdpa", direct: bool = True) -> CompletionNet:
    """LoRA layers that do something: B is not zero."""
    torch.manual_seed(3)
    net = CompletionNet(with_lora(load_weights(base, attention=attention), OPTIONS), direct=direct)
    with torch.no_grad():
        for name, parameter in net.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=0.05)
    return net


def batches_of(examples: list[Example], batching: str, *, patch_size: int = 1, parts: int = 1) -> list[Batch]:
    shared = common_prefix(examples) if batching == "shared_prefix" and patch_size == 1 else 0
    lengths = [n_positions(e, patch_size) - shared for e in examples]
    laid = lay_out(range(len(examples)), lengths, batching=batching, capacity=400, row_tokens=90, parts=parts)
    return [
        make_batch(
            [[examples[i] for i in row] for row in batch],
            packed=batching in ("packed", "shared_prefix"),
            patch_size=patch_size,
            n_shared=shared,
        )
        for batch in laid
    ]


def loss_and_gradients(net: CompletionNet, batches: list[Batch]) -> tuple[float, dict[str, Tensor]]:
    net.zero_grad()
    weight = sum(weight_of(batch) for batch in batches)
    total = 0.0
    for batch in batches:
        loss = net(batch) / weight
        loss.backward()
        total += float(loss.detach())
    return total, {n: p.grad.clone() for n, p in net.named_parameters() if p.grad is not None}


LAYOUTS = [("sdpa", "shared_prefix")]  # eager attention adds its masks, so there no prefix is shared
LAYOUTS += [(attention, batching) for attention in ("sdpa", "eager") for batching in ("packed", "bucketed", "padded")]


@pytest.mark.parametrize(("attention", "batching"), LAYOUTS)
@pytest.mark.parametrize("patch_size", [1, 3])
def test_loss_and_gradients_are_those_of_the_examples_alone(
    small_base: CausalBase, examples: list[Example], attention: str, patch_size: int, batching: str
) -> None:
    net = net_on(small_base, attention=attention)
    alone = [make_batch([[example]], packed=False, patch_size=patch_size) for example in examples]
    loss, gradients = loss_and_gradients(net, alone)
    for parts in (1, 2):
        found, packed = loss_and_gradients(net, batches_of(examples, batching, patch_size=patch_size, parts=parts))
        assert found == pytest.approx(loss, rel=1e-5)
        assert packed.keys() == gradients.keys()
        for name, gradient in gradients.items():
            torch.testing.assert_close(
                packed[name], gradient, rtol=1e-3, atol=1e-5 * float(gradient.abs().max()) + 1e-8
            )


@pytest.mark.parametrize("batching", ["shared_prefix", "packed"])
def test_an_examples_outputs_are_its_own_and_no_neighbours(
    small_base: CausalBase, examples: list[Example], batching: str
) -> None:
    net = net_on(small_base).eval()
    shared = common_prefix(examples) if batching == "shared_prefix" else 0
    one, two, three = examples[:3]
    at = slice(one.n_completion, one.n_completion + two.n_completion)
    other = dataclasses.replace(one, ids=(*one.ids[:shared], *((i + 7) % 200 + 4 for i in one.ids[shared:])))
    with torch.no_grad():
        alone = net.states(make_batch([[two]], packed=False))
        packed = net.states(make_batch([[one, two, three]], packed=True, n_shared=shared))
        beside = net.states(make_batch([[other, two, three]], packed=True, n_shared=shared))
    assert torch.equal(packed[at], beside[at])  # to the last bit: nothing of `one` reaches `two`
    assert not torch.allclose(packed[: one.n_completion], beside[: one.n_completion])
    torch.testing.assert_close(packed[at], alone, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("n_shared", [0, 5])
def test_no_gradient_flows_from_one_example_into_anothers_inputs(
    small_base: CausalBase, examples: list[Example], n_shared: int
) -> None:
    net = net_on(small_base).eval()
    batch = make_batch([examples[:3]], packed=True, n_shared=n_shared)
    embedded = net.core().get_input_embeddings()(batch.ids).detach().requires_grad_(True)
    inputs = {"inputs_embeds": embedded, "position_ids": batch.position_ids, "attention_mask": batch.attention_mask}
    out = net.core().get_decoder()(**inputs, use_cache=False)[0]
    second = examples[0].n_completion
    out[0, batch.where[second : second + examples[1].n_completion]].square().sum().backward()
    reached = embedded.grad[0].abs().sum(dim=-1) > 0
    first = len(examples[0].ids) - 1
    own = n_shared + first - n_shared, first + len(examples[1].ids) - 1 - n_shared
    assert reached[:n_shared].all()
    assert not reached[n_shared : own[0]].any()
    assert reached[own[0] : own[1]].all()
    assert not reached[own[1] :].any()


def test_the_loss_is_over_completion_tokens_and_their_end_alone(
    small_base: CausalBase, examples: list[Example]
) -> None:
    """Against the definition, from the whole model's logits."""
    net = net_on(small_base).eval()
    total, weight = 0.0, 0.0
    for example in examples:
        with torch.no_grad():
            logits = net.causal(input_ids=torch.tensor([example.ids]), use_cache=False).logits[0].double()
        log_probs = logits.log_softmax(-1)
        for at in range(example.n_prompt, len(example.ids)):
            total -= example.weight * float(log_probs[at - 1, example.ids[at]])
        weight += example.weight * example.n_completion
    found, _ = loss_and_gradients(net, batches_of(examples, "packed"))
    assert found == pytest.approx(total / weight, rel=1e-5)


def test_targets_are_the_answers_with_the_end_and_never_the_prompt(
    small_base: CausalBase, examples: list[Example]
) -> None:
    (batch,) = batches_of(examples, "padded")
    flat = [i for example in examples for i in example.ids[example.n_prompt :]]
    assert batch.targets[:, 0].tolist() == flat
    assert batch.targets[:, 0].eq(small_base.eos_ids[0]).sum() == len(examples)


def test_all_logits_give_the_same_as_those_of_completions(small_base: CausalBase, examples: list[Example]) -> None:
    batches = batches_of(examples, "packed")
    direct, gradients = loss_and_gradients(net_on(small_base), batches)
    whole, same = loss_and_gradients(net_on(small_base, direct=False), batches)
    assert whole == pytest.approx(direct, rel=1e-6)
    for name, gradient in gradients.items():
        torch.testing.assert_close(same[name], gradient, rtol=1e-4, atol=1e-7)


def test_chunks_of_logits_change_nothing(
    small_base: CausalBase, examples: list[Example], monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = batches_of(examples, "packed")
    whole, gradients = loss_and_gradients(net_on(small_base), batches)
    monkeypatch.setattr("gpu_runners.distill.causal.net._LOGITS_AT_ONCE", 7 * small_base.vocab_size)
    chunked, same = loss_and_gradients(net_on(small_base), batches)
    assert chunked == pytest.approx(whole, rel=1e-6)
    for name, gradient in gradients.items():
        torch.testing.assert_close(same[name], gradient, rtol=1e-4, atol=1e-7)


def test_patches_are_means_that_predict_the_next_patchs_tokens() -> None:
    example = Example(text="", ids=(1, 2, 3, 4, 5, 6), n_prompt=3, weight=1.0)
    assert units(example, 2) == ([[1], [2, 3], [4, 5], [6]], 2)
    assert n_positions(example, 2) == 3
    batch = make_batch([[example]], packed=True, patch_size=2)
    assert batch.ids.tolist() == [[[1, -1], [2, 3], [4, 5]]]
    assert batch.where.tolist() == [1, 2]
    assert batch.targets.tolist() == [[4, 5], [6, IGNORED]]
    assert weight_of(batch) == 3


def test_boundaries_are_where_the_examples_of_a_row_begin(examples: list[Example]) -> None:
    batch = make_batch([examples[:3]], packed=True, boundaries=True)
    lengths = [n_positions(example, 1) for example in examples[:3]]
    assert batch.boundaries is not None
    assert batch.boundaries.diff().tolist() == lengths
    assert (batch.boundaries.dtype, batch.longest) == (torch.int32, max(lengths))


SMALL = ModelSize(n_parameters=100_000, hidden_size=64, n_layers=2)
CPU = Capabilities(device="cpu", name="cpu")


def chosen(batching: str) -> Choice:
    return choose(dataclasses.replace(OPTIONS, batching=batching), CPU, SMALL)


@pytest.mark.parametrize("batching", ["shared_prefix", "packed"])
def test_a_base_that_keeps_examples_apart_is_packed(small_base: CausalBase, batching: str) -> None:
    net = net_on(small_base)
    choice, checked = check(net, chosen(batching), vocab_size=small_base.vocab_size, device=torch.device("cpu"))
    assert (choice.batching, choice.fallbacks, net.direct) == (batching, (), True)
    assert checked.is_isolated("fp32")


@pytest.mark.parametrize("batching", ["shared_prefix", "packed"])
def test_a_base_whose_layers_mix_neighbours_is_not_packed_and_says_why(batching: str) -> None:
    """LFM2 mixes tokens by convolution, which no attention mask holds back."""
    from transformers import Lfm2Config, Lfm2ForCausalLM

    torch.manual_seed(1)
    config = Lfm2Config(
        vocab_size=200,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        layer_types=["conv", "full_attention"],
        initializer_range=0.3,
    )
    net = CompletionNet(Lfm2ForCausalLM(config))
    choice, checked = check(net, chosen(batching), vocab_size=200, device=torch.device("cpu"))
    assert choice.batching == "bucketed"
    assert choice.fallbacks[-1].got == "bucketed"
    assert "neighbours" in choice.fallbacks[-1].why
    assert not checked.is_isolated("fp32")


@pytest.mark.parametrize("broken", [{"position_ids": None}, {"use_cache": True}])
def test_a_base_that_reads_past_where_an_example_begins_is_not_packed(
    small_base: CausalBase, broken: dict[str, Any]
) -> None:
    """Without position ids there are no boundaries; with a cache, transformers does not look for them."""
    net = net_on(small_base)
    decoder: Any = net.core().get_decoder()
    decoder.register_forward_pre_hook(lambda module, args, kwargs: (args, kwargs | broken), with_kwargs=True)
    choice, _ = check(net, chosen("packed"), vocab_size=small_base.vocab_size, device=torch.device("cpu"))
    assert choice.batching == "bucketed"


def test_a_base_that_scales_its_logits_gets_them_from_its_whole_forward() -> None:
    from transformers import GraniteConfig, GraniteForCausalLM

    config = GraniteConfig(
        vocab_size=100,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        logits_scaling=4.0,
        initializer_range=0.3,
    )
    net = CompletionNet(GraniteForCausalLM(config))
    check(net, chosen("packed"), vocab_size=100, device=torch.device("cpu"))
    assert not net.direct


def test_rounding_is_no_leak_and_a_leak_in_one_position_is() -> None:
    alone = torch.randn(6, 64, generator=torch.Generator().manual_seed(1))
    rounded = alone.clone()
    rounded[2, 5] += 0.3 * alone.std()  # what bf16 does to one of many outputs of a deep base
    leaked = alone.clone()
    leaked[0] = alone[1]
    limit = TOLERANCE["bf16"]
    assert _apart(rounded, alone) < limit < _apart(leaked, alone)
