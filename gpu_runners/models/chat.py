"""One chat a task: the system message, one input, one answer and its end. The one place that makes prompts of them,
for training, evaluation and serving alike.

A text that spells one of the base's special tokens (`<|im_end|>`) is still a text: it is made of ordinary tokens, so
that no input can end its own turn and begin another one's.
"""

import re
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from gpu_runners.errors import JobFailed
from gpu_runners.models.causal_base import CausalBase
from gpu_runners.models.chat_template import fold_system, render_chat

_SLOW_S, _SLOW_EACH_S = 30.0, 0.25  # prompts that take so long in all and each are a template's fault
_MARK = re.compile("text[0-9a-f]{32}")


def prompt_ids(base: CausalBase, system: str, text: str) -> list[int]:
    """The tokens up to where the answer begins, by the base's own chat template."""
    head = [{"role": "system", "content": system}] if system else []
    return chat_ids(base, [*head, {"role": "user", "content": text}])


def prompts_of(base: CausalBase, system: str, texts: Iterable[str]) -> Iterator[list[int]]:
    """`prompt_ids` of each text in turn. Raises JobFailed(bad_chat) where the template is not done with them in time:
    it came with the base, and others wait."""
    began, n = time.monotonic(), 0
    for n, text in enumerate(texts, start=1):
        yield prompt_ids(base, system, text)
        took_s = time.monotonic() - began
        if took_s > max(_SLOW_S, _SLOW_EACH_S * n):
            raise JobFailed(
                f"The base's chat template took {took_s:.0f} s for {n} texts. Use another base.", code="bad_chat"
            )


def chat_ids(
    base: CausalBase, messages: Sequence[Mapping[str, Any]], *, tools: Sequence[Any] | None = None
) -> list[int]:
    """The tokens of a whole chat, ready for the next answer. Raises JobFailed(bad_chat) where the template refuses it
    (roles that do not alternate) or does not come to an end, or where a tool spells a special token."""
    if any(_spells_special(base, text) for text in _texts(tools)):
        raise JobFailed("A tool's definition spells one of the base's special tokens.", code="bad_chat")
    stand_ins: dict[str, str] = {}
    chat = fold_system(messages) if base.template.folds_system else messages
    rendered = _render(base, [_with_stand_ins(base, dict(m), stand_ins) for m in chat], tools)
    around: list[str] = []  # what the template made, before, between and after the texts of `within`
    within: list[str] = []
    at = 0
    for mark in _MARK.finditer(rendered):
        if mark[0] in stand_ins:  # and no text that only looks like one
            around.append(rendered[at : mark.start()])
            within.append(stand_ins[mark[0]])
            at = mark.end()
    around.append(rendered[at:])
    plain = [*_ids_of_each(base, within, is_plain=True), []]
    return [
        i for pair in zip(_ids_of_each(base, around, is_plain=False), plain, strict=True) for ids in pair for i in ids
    ]


def prompt_end(base: CausalBase, *, n_tokens: int) -> tuple[int, ...]:
    """The last tokens of every prompt of the base's chat template; () where they depend on the text."""
    a, b = (prompt_ids(base, "", text)[-n_tokens:] for text in ("a", "1"))
    return tuple(a) if a == b else ()


def completion_ids(base: CausalBase, answer: str) -> list[int]:
    """The tokens of an answer with the end of turn that the student has to learn."""
    return [*_ids_of_each(base, [answer], is_plain=True)[0], base.eos_ids[0]]


def _render(base: CausalBase, messages: Sequence[Mapping[str, Any]], tools: Sequence[Any] | None) -> str:
    try:
        return render_chat(base.tokenizer, base.template, messages, tools=tools)
    except (ValueError, TypeError, KeyError) as error:
        raise JobFailed(f"The base's chat template does not take these messages: {error}.", code="bad_chat") from error


def _with_stand_ins(base: CausalBase, message: dict[str, Any], stand_ins: dict[str, str]) -> dict[str, Any]:
    """The message with each text that spells a special token replaced by a mark that nobody can have written; the
    texts go into `stand_ins` by their marks. Other texts stay: the tokens at their edges are then the template's."""
    return {name: _replace(base, value, stand_ins) for name, value in message.items()}


def _replace(base: CausalBase, value: Any, stand_ins: dict[str, str]) -> Any:
    if isinstance(value, dict):
        return {name: _replace(base, part, stand_ins) for name, part in value.items()}
    if isinstance(value, list):
        return [_replace(base, part, stand_ins) for part in value]
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


def _ids_of_each(base: CausalBase, texts: list[str], *, is_plain: bool) -> list[list[int]]:
    if not texts:
        return []
    encoded = base.tokenizer(texts, add_special_tokens=False, split_special_tokens=is_plain)["input_ids"]
    rows = [[int(i) for i in ids] for ids in encoded]
    beyond = next((i for ids in rows for i in ids if i >= base.vocab_size), None)
    if beyond is not None:
        raise JobFailed(
            f"The base's tokenizer makes {base.tokenizer.convert_ids_to_tokens(beyond)!r} of this chat, a token for "
            "which its weights have no row. Use another base.",
            code="bad_chat",
        )
    return rows
