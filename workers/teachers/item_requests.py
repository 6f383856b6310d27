"""What a teacher is asked of one input, whatever the task's output: its label, or its answer."""

from backend.domain.spec.parsing import LabelOutput, Spec
from workers.teachers.answer_prompt import answer_request
from workers.teachers.prompts import label_request
from workers.teachers.protocol import CompletionRequest


def item_request(spec: Spec, text: str, *, n: int, temperature: float, seed: int | None) -> CompletionRequest:
    """Ask `n` times."""
    ask = label_request if isinstance(spec.output, LabelOutput) else answer_request
    return ask(spec, text, n=n, temperature=temperature, seed=seed)
