"""A base's chat template, asked by rendering instead of known by family: what ends a turn, whether it has a system
role, and how a prompt is made that says the same today and tomorrow.

Three things are fixed. The date: a template that writes today's gets DATE, or an adapter would be trained on one
prompt and served on another. Thinking: it is switched off where the template knows a switch (`enable_thinking`,
`thinking`), and what a template writes before an answer that was not thought about (an empty thought, the channel of
the answer) is part of the prompt, because the student learns the answer alone. The system message: where a template
refuses or drops it, it becomes the beginning of the first user turn.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpu_runners.errors import JobFailed
from gpu_runners.models.rendering.renderer import RENDERER, TemplateRefused

DATE = "26 Jul 2024"  # what Llama 3.1 and 3.2 write where there is no clock
# what strftime writes at its midnight in the C locale; week numbers and other eras are no template's
_CODES = {
    "%-d": "26",
    "%d": "26",
    "%e": "26",
    "%j": "208",
    "%-j": "208",
    "%m": "07",
    "%-m": "7",
    "%Y": "2024",
    "%y": "24",
    "%-y": "24",
    "%B": "July",
    "%b": "Jul",
    "%h": "Jul",
    "%A": "Friday",
    "%a": "Fri",
    "%u": "5",
    "%w": "5",
    "%H": "00",
    "%-H": "0",
    "%I": "12",
    "%-I": "12",
    "%M": "00",
    "%-M": "0",
    "%S": "00",
    "%-S": "0",
    "%f": "000000",
    "%p": "AM",
    "%Z": "",
    "%z": "",
    "%F": "2024-07-26",
    "%D": "07/26/24",
    "%T": "00:00:00",
    "%R": "00:00",
    "%c": "Fri Jul 26 00:00:00 2024",
    "%x": "07/26/24",
    "%X": "00:00:00",
}
_PERCENT = "\ue000"  # stands for %% until all codes are replaced
_NO_CODE = "strftime_now:"  # begins the refusal of a format with other codes
# A macro of the clock's name, before the template: the newline behind it is the one that a block takes with it.
_CLOCK = (
    f"{{%- macro strftime_now(format) -%}}{{%- set text = format | replace('%%', {_PERCENT!r})"
    + "".join(f" | replace({code!r}, {text!r})" for code, text in _CODES.items())
    + " -%}{%- if '%' in text -%}{{ raise_exception("
    + repr(_NO_CODE)
    + " ~ format) }}{%- endif -%}{{ text | replace("
    + f"{_PERCENT!r}, '%') }}}}{{%- endmacro %}}\n"
)
_SWITCHES: Mapping[str, Any] = {"date_string": DATE, "enable_thinking": False, "thinking": False}
_WORD = r"(?:\w+:)?(?:think|thinking|thoughts?|reasoning)"
# <think> and most others; <seed:think> (Seed-OSS), ◁think▷ (Kimi-VL), [THINK] (Magistral), all closed with a stroke
_OPEN_THOUGHT = re.compile(rf"(?:<{_WORD}>|\[{_WORD}\]|◁{_WORD}▷)\s*\Z", re.IGNORECASE)
# <|begin_of_thought|> (OpenThinker), <|START_THINKING|> (Command A)
_BEGUN_THOUGHT = re.compile(r"<\|(?:begin|start)_(\w*(?:thought|thinking))\|>\s*\Z", re.IGNORECASE)
_SYSTEM, _USER, _ANSWER, _NEXT = "Zebrasystem", "Zebrauser", "Zebraanswer", "Zebranext"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatTemplate:
    """The facts that rendering showed. `folds_system`: the system message goes into the first user turn. `answer_head`
    is what stands between the template's own prompt and an answer without a thought, mostly "". `end` is the special
    token after an answer, "" where the template writes none."""

    folds_system: bool = False
    answer_head: str = ""
    end: str = ""


PLAIN = ChatTemplate()


def read_template(tokenizer: Any, *, special_tokens: Sequence[str], stops: Sequence[str]) -> ChatTemplate | None:
    """Render a few small chats; None where the template refuses a user's text, or drops it (those that want a list of
    parts). `stops` are the tokens that the base's files call an end: what opens the next turn counts as the end of an
    answer only where it is one of them (GLM-4's `<|user|>`)."""
    with_system = [{"role": "system", "content": _SYSTEM}, _user(_USER)]
    opening = next((c for c in ([_user(_USER)], with_system) if _USER in _probe(tokenizer, c, asks=True)), None)
    if opening is None:
        return None
    turns = [*opening, {"role": "assistant", "content": _ANSWER}]
    return ChatTemplate(
        folds_system=_SYSTEM not in _probe(tokenizer, with_system, asks=True),
        answer_head=_answer_head(_probe(tokenizer, opening, asks=True), _probe(tokenizer, turns)),
        end=_end_of_turn(tokenizer, turns, special_tokens, stops),
    )


def render_chat(
    tokenizer: Any,
    template: ChatTemplate,
    messages: Sequence[Mapping[str, Any]],
    *,
    tools: Sequence[Any] | None = None,
) -> str:
    """The text of a chat up to where the answer begins. Raises TemplateRefused, JobFailed(bad_chat)."""
    return _render(tokenizer, list(messages), tools, asks=True) + template.answer_head


def fold_system(messages: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The chat with its leading system messages at the beginning of the first user turn. Without such a turn behind
    them it stays as it is, for the template to refuse."""
    n = next((i for i, message in enumerate(messages) if message.get("role") != "system"), len(messages))
    if n in (0, len(messages)) or messages[n].get("role") != "user":
        return list(messages)
    head = "\n\n".join(_text(message.get("content")) for message in messages[:n])
    content = messages[n].get("content")
    whole: Any = f"{head}\n\n{content}"
    if isinstance(content, list):
        whole = [{"type": "text", "text": f"{head}\n\n"}, *content]
    return [{**messages[n], "content": whole}, *messages[n + 1 :]]


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, Mapping))
    return str(content or "")


def _answer_head(prompt: str, finished: str) -> str:
    """Compare a finished turn with the prompt for it. A space alone is left to the answer's first token; a thought
    that only the prompt opens (DeepSeek-R1's distillates) is closed as Qwen3 closes its own."""
    before, mark, _ = finished.rpartition(_ANSWER)
    if mark and before.startswith(prompt):
        head = before.removeprefix(prompt)
        return head if head.strip(" ") else ""
    if thought := _OPEN_THOUGHT.search(prompt):
        return f"\n{thought[0][0]}/{thought[0][1:].rstrip()}\n\n"
    if begun := _BEGUN_THOUGHT.search(prompt):
        return f"\n<|{'END' if begun[1].isupper() else 'end'}_{begun[1]}|>\n\n"
    return ""


def _end_of_turn(
    tokenizer: Any, turns: Sequence[Mapping[str, Any]], special_tokens: Sequence[str], stops: Sequence[str]
) -> str:
    alone = _first_special(_probe(tokenizer, turns), special_tokens)
    if alone:
        return alone
    followed = _first_special(_probe(tokenizer, [*turns, _user(_NEXT)]), special_tokens)
    return followed if followed in stops else ""


def _first_special(text: str, special_tokens: Sequence[str]) -> str:
    """The first special token behind the answer; the longest of those that begin at one place."""
    _, mark, tail = text.rpartition(_ANSWER)
    if not mark:
        return ""
    places = [(tail.index(token), -len(token), token) for token in special_tokens if token and token in tail]
    return min(places)[2] if places else ""


def _probe(tokenizer: Any, messages: Sequence[Mapping[str, Any]], *, asks: bool = False) -> str:
    """A rendering, "" where the template refuses the chat."""
    try:
        return _render(tokenizer, list(messages), None, asks=asks)
    except (ValueError, TypeError, KeyError):
        return ""


def _render(tokenizer: Any, messages: list[Mapping[str, Any]], tools: Sequence[Any] | None, *, asks: bool) -> str:
    """Render as `tokenizer.apply_chat_template` does, in the process apart. Raises TemplateRefused, and
    JobFailed(bad_chat) for a date in a format that the pinned clock does not write."""
    if not messages:
        raise TemplateRefused("A chat has at least one message.")
    offered = list(tools) if tools else None
    template = str(tokenizer.get_chat_template(tools=offered))
    if "strftime_now" in str(tokenizer.chat_template):
        template = _CLOCK + template
    try:
        return RENDERER.render(
            template,
            [{name: value for name, value in message.items() if value is not None} for message in messages],
            tools=offered,
            asks=asks,
            more=tokenizer.special_tokens_map | dict(_SWITCHES),
        )
    except TemplateRefused as refused:
        _, mark, written = str(refused).partition(_NO_CODE)
        if not mark:
            raise
        raise JobFailed(
            f"The base's chat template writes the date as {written[:80]!r}, and kolm, which keeps it the same every "
            "day, does not know all of its codes. Use another base.",
            code="bad_chat",
        ) from refused


def _user(text: str) -> Mapping[str, Any]:
    return {"role": "user", "content": text}
