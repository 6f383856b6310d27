"""One chat a task: the system message, one input, one answer and its end. The one place that makes prompts of them,
for training, evaluation and serving alike.

A text that spells one of the base's special tokens (`<|im_end|>`) is still a text: it is made of ordinary tokens, so
that no input can end its own turn and begin another one's.
"""

import secrets
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
    (roles that do not alternate), or where a tool spells a special token."""
    if any(_spells_special(base, text) for text in _texts(tools)):
        raise JobFailed("A tool's definition spells one of the base's special tokens.", code="bad_chat")
    stand_ins: dict[str, str] = {}
    rendered = _rendered(base, [_with_stand_ins(base, dict(m), stand_ins) for m in messages], tools)
    ids: list[int] = []
    while stand_ins:
        mark = min(stand_ins, key=lambda one: (rendered.find(one) < 0, rendered.find(one)))
        text = stand_ins.pop(mark)
        before, found, rest = rendered.partition(mark)
        if found:
            ids += _ids(base, before, is_plain=False) + _ids(base, text, is_plain=True)
            rendered = rest
    return ids + _ids(base, rendered, is_plain=False)


def completion_ids(base: CausalBase, answer: str) -> list[int]:
    """The tokens of an answer with the end of sequence that the student has to learn."""
    return [*_ids(base, answer, is_plain=True), base.eos_ids[0]]


def _rendered(base: CausalBase, messages: Sequence[Mapping[str, Any]], tools: Sequence[Any] | None) -> str:
    import jinja2

    try:
        text: str = base.tokenizer.apply_chat_template(
            list(messages), tools=list(tools) if tools else None, add_generation_prompt=True, tokenize=False
        )
    except (jinja2.TemplateError, ValueError, TypeError, KeyError) as error:
        raise JobFailed(f"The base's chat template does not take these messages: {error}.", code="bad_chat") from error
    return text


def _with_stand_ins(base: CausalBase, message: dict[str, Any], stand_ins: dict[str, str]) -> dict[str, Any]:
    """The message with each text that spells a special token replaced by a mark that nobody can have written; the
    texts go into `stand_ins` by their marks. Other texts stay: the tokens at their edges are then the template's."""
    return {name: _replaced(base, value, stand_ins) for name, value in message.items()}


def _replaced(base: CausalBase, value: Any, stand_ins: dict[str, str]) -> Any:
    if isinstance(value, dict):
        return {name: _replaced(base, part, stand_ins) for name, part in value.items()}
    if isinstance(value, list):
        return [_replaced(base, part, stand_ins) for part in value]
    if not isinstance(value, str) or not _spells_special(base, value):
        return value
    mark = f"text{secrets.token_hex(16)}"
    stand_ins[mark] = value
    return mark


def _spells_special(base: CausalBase, text: str) -> bool:
    return any(token in text for token in base.special_tokens)


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, Mapping):
        return [text for name, part in value.items() for text in (*_texts(name), *_texts(part))]
    if isinstance(value, Sequence):
        return [text for part in value for text in _texts(part)]
    return []


def _ids(base: CausalBase, text: str, *, is_plain: bool) -> list[int]:
    found: list[int] = base.tokenizer(text, add_special_tokens=False, split_special_tokens=is_plain)["input_ids"]
    return [int(i) for i in found]
