"""One chat a task: the system message, one input, one answer and its end. The one place that makes prompts of them,
for training, evaluation and serving alike."""

from collections.abc import Mapping, Sequence
from typing import Any

from gpu_runners.causal.base import CausalBase
from gpu_runners.errors import JobFailed


def prompt_ids(base: CausalBase, system: str, text: str) -> list[int]:
    """The tokens up to where the answer begins, by the base's own chat template."""
    head = [{"role": "system", "content": system}] if system else []
    return chat_ids(base, [*head, {"role": "user", "content": text}])


def chat_ids(
    base: CausalBase, messages: Sequence[Mapping[str, Any]], *, tools: Sequence[Any] | None = None
) -> list[int]:
    """The tokens of a whole chat, ready for the next answer. Raises JobFailed(bad_chat) where the template refuses it
    (roles that do not alternate)."""
    import jinja2

    try:
        ids: list[int] = base.tokenizer.apply_chat_template(
            list(messages), tools=list(tools) if tools else None, add_generation_prompt=True, return_dict=False
        )
    except (jinja2.TemplateError, ValueError, TypeError, KeyError) as error:
        raise JobFailed(f"The base's chat template does not take these messages: {error}.", code="bad_chat") from error
    return [int(i) for i in ids]


def completion_ids(base: CausalBase, answer: str) -> list[int]:
    """The tokens of an answer with the end of sequence that the student has to learn."""
    ids: list[int] = base.tokenizer(answer, add_special_tokens=False)["input_ids"]
    return [*(int(i) for i in ids), base.eos_ids[0]]
