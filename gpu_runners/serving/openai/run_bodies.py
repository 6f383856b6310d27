"""The body and the answer of `POST /v1/run` of `kolm serve`: those of `POST /v1/artifacts/{id}/run`, with a larger
bound on how many inputs there are, for nobody waits for a runner here."""

from collections.abc import Mapping, Sequence
from typing import Any

MAX_INPUTS = 256
MAX_CHARS = 100_000


class BadInputs(ValueError):
    """The body has no inputs that can be run; the message is for who sent it."""


def read_inputs(body: object) -> list[str]:
    """The texts of `inputs`, or of `input`, which may be one text. Raises BadInputs."""
    if not isinstance(body, dict) or len(body) != 1 or not {"input", "inputs"} >= set(body):
        raise BadInputs('Send {"inputs": ["text", ...]}, or {"input": "text"}.')
    ((name, value),) = body.items()
    texts = [value] if isinstance(value, str) and name == "input" else value
    if not isinstance(texts, list) or not all(isinstance(text, str) and len(text) <= MAX_CHARS for text in texts):
        raise BadInputs(f"`{name}` is a list of texts of at most {MAX_CHARS:,} characters; `input` may be one text.")
    if not 1 <= len(texts) <= MAX_INPUTS:
        raise BadInputs(f"`{name}` has {len(texts)} texts; send 1 to {MAX_INPUTS} at a time.")
    return texts


def run_answer(manifest: Mapping[str, Any], outputs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """`artifact` is the name of the one that is here; what is loaded and paid for elsewhere is nothing."""
    return {
        "object": "run",
        "artifact": manifest["name"],
        "outputs": list(outputs),
        "load_ms": 0,
        "cost_microusd": 0,
    }
