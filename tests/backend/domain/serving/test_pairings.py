"""A draft model is used with the target's own tokenizer or not at all."""

from hypothesis import given
from hypothesis import strategies as st

from backend.domain.serving.pairings import PAIRINGS, pick_draft

digests = st.text(alphabet="0123456789abcdef", min_size=64, max_size=64)
targets = st.sampled_from(sorted(PAIRINGS))


@given(targets, digests)
def test_the_same_tokenizer_gives_the_seeds_pairing(target: str, digest: str) -> None:
    assert pick_draft(target, digest, digest).draft == PAIRINGS[target]


@given(targets, digests, digests)
def test_another_tokenizer_is_refused_with_a_reason(target: str, one: str, other: str) -> None:
    picked = pick_draft(target, one, other)
    assert (picked.draft is None) == (one != other)
    assert picked.reason


@given(st.text(), digests)
def test_an_unknown_target_has_no_draft(target: str, digest: str) -> None:
    if target not in PAIRINGS:
        assert pick_draft(target, digest, digest).draft is None


@given(targets, st.sampled_from(["", "unknown", "A" * 64, "a" * 63, "a" * 64 + "\n"]))
def test_what_is_no_digest_is_never_equal_to_itself(target: str, text: str) -> None:
    assert pick_draft(target, text, text).draft is None


@given(targets, digests, st.integers(1, 200_000), st.integers(1, 200_000))
def test_padding_of_the_output_layer_is_told_and_does_not_refuse(target: str, digest: str, one: int, two: int) -> None:
    picked = pick_draft(target, digest, digest, vocab_size_target=one, vocab_size_draft=two)
    assert picked.draft == PAIRINGS[target]
    assert picked.widths_differ is (one != two)


def test_qwen_sizes_fit_though_their_output_layers_are_padded_differently() -> None:
    digest = "c" * 64
    target = "Qwen/Qwen2.5-7B-Instruct"
    picked = pick_draft(target, digest, digest, vocab_size_target=152_064, vocab_size_draft=151_936)
    assert (picked.draft, picked.widths_differ) == ("Qwen/Qwen2.5-1.5B-Instruct", True)


def test_no_draft_is_its_own_target() -> None:
    assert all(draft != target for target, draft in PAIRINGS.items())
