"""The teacher as a judge between two answers to a text task. Who calls asks twice, the second time with the places
swapped, and takes `generative.verdict_of` of both."""

from backend.domain.spec.parsing import Spec
from workers.teachers.answer_prompt import answer_head
from workers.teachers.pairwise_prompt import pairwise_messages, parse_preference
from workers.teachers.protocol import CompletionRequest

MAX_TOKENS = 8
__all__ = ["pairwise_request", "parse_preference"]


def pairwise_request(spec: Spec, text: str, a: str, b: str, *, seed: int | None = None) -> CompletionRequest:
    """Ask once which of `a` and `b` answers `text` better."""
    return CompletionRequest(
        messages=pairwise_messages(answer_head(spec), text, a, b),
        n=1,
        temperature=0.0,
        max_tokens=MAX_TOKENS,
        seed=seed,
        item=text,
    )
