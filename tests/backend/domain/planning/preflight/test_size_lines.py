"""What a training takes of a device, of what a file may have, and of the store."""

import re

import pytest

from backend.domain.jobs.base_checks import CheckBaseResult
from backend.domain.planning.adapter_sizes import adapter_bytes, checkpoint_bytes
from backend.domain.planning.preflight.lines import LineStatus
from backend.domain.planning.preflight.size_lines import disk_line, memory_line, training_sizes, transfer_line
from tests.backend.domain.planning.preflight.test_base_lines import SEVEN_B, runner, spec_of, the_base

LIMIT = 256_000_000
QWEN_7B = {
    "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28, "num_attention_heads": 28,
    "num_key_value_heads": 4,
}  # fmt: skip


@pytest.mark.parametrize(
    ("report", "causal", "status"),
    [
        ({"device": "cpu", "memory_bytes": 16 * 10**9}, {}, LineStatus.FAILED),
        ({"device": "cpu", "memory_bytes": 64 * 10**9}, {}, LineStatus.PASSED),
        ({"device": "cuda", "memory_bytes": 24 * 10**9, "has_bf16": True}, {}, LineStatus.PASSED),
        ({"device": "cuda", "memory_bytes": 24 * 10**9, "has_bf16": True}, {"precision": "fp32"}, LineStatus.FAILED),
        ({"device": "cuda", "memory_bytes": 12 * 10**9, "has_bf16": True}, {}, LineStatus.FAILED),
        ({"device": "cuda", "memory_bytes": 12 * 10**9, "has_bf16": True}, {"variant": "qlora"}, LineStatus.FAILED),
        ({"device": "cuda", "memory_bytes": 16 * 10**9, "has_bf16": True}, {"variant": "qlora"}, LineStatus.PASSED),
    ],
)
def test_memory_is_weights_by_the_devices_precision_and_what_is_trained(report, causal, status) -> None:
    """Of qlora too: the evaluation holds the base whole."""
    spec = spec_of(**causal)
    line = memory_line(spec, the_base(spec), SEVEN_B, [runner(**report)])
    assert line.status is status, line.sentence
    if status is LineStatus.FAILED:
        assert (line.code, "the only runner, a, has" in line.sentence) == ("base_exceeds_memory", True)


def test_on_a_processor_a_whole_batch_has_to_fit_and_the_advice_is_a_smaller_one() -> None:
    """Its trainer makes a batch of tokens_per_step at once, and nothing catches the end of the memory."""
    read = CheckBaseResult(n_parameters=7_615_616_512, adapter_parameters=2_523_136, config=QWEN_7B)
    cpu, spec = runner(device="cpu", memory_bytes=64 * 10**9), spec_of()
    line = memory_line(spec, the_base(spec), read, [cpu])
    assert (line.status, line.code) == (LineStatus.FAILED, "base_exceeds_memory")
    assert "a batch of 4096 tokens" in line.sentence
    lowered = re.search(r"Lower train.causal.tokens_per_step to (\d+) or less", line.what_to_do)
    assert lowered is not None
    spec = spec_of(tokens_per_step=int(lowered[1]))
    line = memory_line(spec, the_base(spec), read, [cpu])
    assert line.status is LineStatus.PASSED, line.sentence
    assert "not known" not in line.sentence
    gpu = runner(device="cuda", memory_bytes=24 * 10**9, has_bf16=True)
    assert memory_line(spec_of(), the_base(), read, [gpu]).status is LineStatus.PASSED, "there a step is made in halves"


def test_what_a_batch_takes_of_an_unknown_base_is_said_to_be_unknown() -> None:
    line = memory_line(spec_of(), the_base(), SEVEN_B, [runner(device="cpu", memory_bytes=64 * 10**9)])
    assert (line.status, "What a batch takes on top is not known" in line.sentence) == (LineStatus.PASSED, True)


def test_a_small_runner_beside_a_large_one_is_a_warning() -> None:
    small, large = runner("small", memory_bytes=8 * 10**9), runner("large", memory_bytes=80 * 10**9)
    line = memory_line(spec_of(), the_base(), SEVEN_B, [small, large])
    assert (line.status, line.code) == (LineStatus.WARNING, "base_exceeds_memory")
    assert "small has not" in line.sentence


@pytest.mark.parametrize(
    ("rank", "status", "code"),
    [
        (4, LineStatus.PASSED, ""),
        (8, LineStatus.WARNING, "checkpoint_too_large"),
        (64, LineStatus.FAILED, "adapter_too_large"),
    ],
)
def test_adapter_and_checkpoint_are_held_against_what_a_file_may_have(rank: int, status: LineStatus, code: str) -> None:
    """7B and 256 MB: checkpoints of rank 8 have 283 MB (161 with an 8-bit optimiser), an adapter of rank 64 has 323."""
    line = transfer_line(spec_of(rank=rank), the_base(spec_of(rank=rank)), None, limit_bytes=LIMIT)
    assert (line.status, line.code or "") == (status, code), line.sentence
    if code == "checkpoint_too_large":
        assert "begins again" in line.sentence
    if code == "adapter_too_large":
        assert line.what_to_do.startswith("Lower train.causal.rank to 50 or less")


def test_the_size_of_an_unknown_adapter_is_not_invented() -> None:
    spec = spec_of(base="owner/unheard-of")
    line = transfer_line(spec, the_base(spec), None, limit_bytes=LIMIT)
    assert (line.status, line.code) == (LineStatus.WARNING, "adapter_size_not_known")
    read = CheckBaseResult(adapter_parameters=549_888)
    assert transfer_line(spec, the_base(spec), read, limit_bytes=LIMIT).status is LineStatus.PASSED
    assert disk_line(spec, the_base(spec), None, free_bytes=10**9).status is LineStatus.SKIPPED


@pytest.mark.parametrize("variant", ["lora", "dora"])
@pytest.mark.parametrize("rank", [1, 16])
def test_the_sizes_are_those_of_the_bases_own_config_where_a_runner_read_one(rank: int, variant: str) -> None:
    """DoRA at rank 1: its magnitudes have more bytes than the matrices, which a count by rank does not see."""
    spec = spec_of(rank=rank, variant=variant)
    read = CheckBaseResult(adapter_parameters=2_523_136, config=QWEN_7B)
    sizes = training_sizes(spec, the_base(spec), read)
    assert sizes is not None
    assert sizes.adapter == adapter_bytes(QWEN_7B, rank=rank, variant=variant)
    assert sizes.checkpoint == checkpoint_bytes(QWEN_7B, rank=rank, variant=variant)
    line = transfer_line(spec, the_base(spec), read, limit_bytes=2**31)
    assert f"{sizes.adapter / 1e6:.1f} MB" in line.sentence
    assert "known" not in line.sentence


def test_what_the_sizes_do_not_know_is_said() -> None:
    spec = spec_of(variant="dora")
    nobody = transfer_line(spec, the_base(spec), None, limit_bytes=2**31)
    assert "No runner has checked the base" in nobody.sentence
    assert "DoRA's magnitudes come on top" in nobody.sentence
    counted = transfer_line(spec, the_base(spec), SEVEN_B, limit_bytes=2**31)
    assert "Nobody has looked" not in counted.sentence
    assert "DoRA's magnitudes come on top" in counted.sentence


def test_a_part_of_a_config_is_none() -> None:
    """A runner is half trusted: what is not whole is left out, and the count by layers stands in for it."""
    spec, part = spec_of(), CheckBaseResult(adapter_parameters=2_523_136, config={"hidden_size": 3584})
    sizes = training_sizes(spec, the_base(spec), part)
    assert sizes is not None
    assert (sizes.parameters, sizes.has_magnitudes) == (8 * 2_523_136, False)


def test_a_base_whose_smallest_adapter_is_too_large_is_the_advice_and_no_rank_below_one() -> None:
    line = transfer_line(spec_of(rank=8), the_base(spec_of(rank=8)), SEVEN_B, limit_bytes=1_000_000)
    assert (line.code, line.what_to_do) == ("adapter_too_large", "Take a smaller train.causal.base.")


def test_a_store_without_room_for_two_checkpoints_refuses() -> None:
    assert disk_line(spec_of(), the_base(), SEVEN_B, free_bytes=10**12).status is LineStatus.PASSED
    line = disk_line(spec_of(), the_base(), SEVEN_B, free_bytes=500_000_000)
    assert (line.status, line.code) == (LineStatus.FAILED, "blob_store_full")
    assert disk_line(spec_of(), the_base(), SEVEN_B, free_bytes=None).status is LineStatus.SKIPPED
