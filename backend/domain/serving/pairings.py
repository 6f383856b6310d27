"""The pairings of a small draft model with a large one in speculative decoding, and when it may.

A draft's tokens are the target's tokens only where both have one tokenizer; a pairing across tokenizers proposes noise
or, worse, other words. So the table below is where to look, and the tokenizers' digests decide.

A digest is over tokenizer.json and the chat template (`gpu_runners.models.causal_base`). It says nothing of the width
of the output layer, on purpose: Qwen2.5 pads it to 151,936 rows up to 3B and to 152,064 from 7B on, over one vocabulary
of 151,665 tokens. Rows beyond it stand for no token and are never sampled by a trained model, so such a pair fits;
`PickedDraft.widths_differ` says so to whoever starts an engine that compares widths.
"""

import re
from dataclasses import dataclass
from types import MappingProxyType

# seed 002, apps/trainer/speculative.py
PAIRINGS = MappingProxyType(
    {
        "Qwen/Qwen2.5-7B-Instruct": "Qwen/Qwen2.5-1.5B-Instruct",
        "Qwen/Qwen2.5-14B-Instruct": "Qwen/Qwen2.5-3B-Instruct",
        "meta-llama/Llama-3.2-3B-Instruct": "meta-llama/Llama-3.2-1B-Instruct",
        "meta-llama/Llama-3.1-8B-Instruct": "meta-llama/Llama-3.2-1B-Instruct",
        "google/gemma-3-12b-it": "google/gemma-3-1b-it",
    }
)

_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PickedDraft:
    """`draft` is None where there is none to use; `reason` says why, or why it is fit."""

    target: str
    draft: str | None
    reason: str
    widths_differ: bool = False


def pick_draft(
    target: str,
    tokenizer_sha_target: str,
    tokenizer_sha_draft: str,
    *,
    named: str | None = None,
    vocab_size_target: int | None = None,
    vocab_size_draft: int | None = None,
) -> PickedDraft:
    """The draft of `target` (`named`, else the one paired with it, whatever its revision) if both digests are the same
    sha256 (lower-case hex). The vocabulary sizes are those of the models' configs, padding and all, where they are
    known."""
    draft = named or PAIRINGS.get(target.partition("@")[0])
    if draft is None:
        return PickedDraft(target=target, draft=None, reason="no draft is known for this model")
    for name, digest in (("target", tokenizer_sha_target), ("draft", tokenizer_sha_draft)):
        if not _DIGEST.fullmatch(digest):
            return PickedDraft(target=target, draft=None, reason=f"the {name}'s tokenizer has no digest")
    if tokenizer_sha_target != tokenizer_sha_draft:
        difference = f"{tokenizer_sha_draft[:12]}, not {tokenizer_sha_target[:12]}"
        return PickedDraft(target=target, draft=None, reason=f"the tokenizer of {draft} is another one ({difference})")
    return PickedDraft(
        target=target,
        draft=draft,
        reason="the same tokenizer",
        widths_differ=None not in (vocab_size_target, vocab_size_draft) and vocab_size_target != vocab_size_draft,
    )
