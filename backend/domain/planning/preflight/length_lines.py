"""The line about pairs that are too long for the training of a causal base, which leaves them out, before they are paid
for. Tokens are estimated by bytes, so that the line fails only where no tokenizer could make the pairs fit."""

from collections.abc import Sequence

from backend.domain.planning.preflight.lines import Check, PreflightLine, failed_line, warning_line
from backend.domain.planning.trial_estimates import BYTES_PER_TOKEN, n_bytes
from backend.domain.planning.trials import TrialKind
from backend.domain.spec.defaults import train_kind
from backend.domain.spec.inputs import Example
from backend.domain.spec.models import Spec
from backend.domain.spec.task_prompt import system_prompt

MOST_BYTES_PER_TOKEN = 8  # no tokenizer makes fewer tokens of a text in any language
MANY = 4  # a quarter of the examples
FRAME_TOKENS = 32  # of a chat's own marks, in the advice
STEP = 64
MOST_TOKENS = 1 << 17  # that a spec may ask for


def length_lines(spec: Spec, *, gold: Sequence[Example], captures: Sequence[str]) -> list[PreflightLine]:
    """A warning where many examples are longer than what is trained on; a failure where no pair at all can fit."""
    kind, limit = train_kind(spec), spec.train.causal.max_tokens
    prompt = n_bytes(system_prompt(spec))
    sizes = [prompt + n_bytes(example.input, example.output) for example in gold]
    sizes += [prompt + n_bytes(text) for text in captures]
    n_long = sum(size > BYTES_PER_TOKEN * limit for size in sizes)
    if kind == TrialKind.ENCODER or n_long * MANY < len(sizes) or not n_long:
        return []
    what_to_do = f"Raise train.causal.max_tokens to {_tokens_for(max(sizes))}, or give a shorter task and inputs."
    # candidates may be shorter than gold; where none are written, every pair has one of these inputs
    least = prompt if spec.slices or not captures else min(sizes)
    if kind == TrialKind.CAUSAL and least > MOST_BYTES_PER_TOKEN * limit:
        sentence = (
            f"No pair would fit into the {limit} tokens of train.causal.max_tokens: the shortest has about "
            f"{least // BYTES_PER_TOKEN} with the task before it."
        )
        return [failed_line(Check.GOLD, sentence, code="nothing_to_train", what_to_do=what_to_do)]
    sentence = (
        f"{n_long} of {len(sizes)} examples and captures have more than the {limit} tokens of train.causal.max_tokens, "
        "as far as bytes show it, with the task before them: such pairs are left out of the training."
    )
    return [warning_line(Check.GOLD, sentence, code="examples_too_long", what_to_do=what_to_do)]


def _tokens_for(size: int) -> int:
    """The tokens that hold an example of so many bytes.

    >>> _tokens_for(6000)
    1536
    """
    return min(MOST_TOKENS, -(-(size // BYTES_PER_TOKEN + FRAME_TOKENS) // STEP) * STEP)
