"""The prompt of a task as two texts around the input, and Ollama's Modelfile that says so."""

from dataclasses import dataclass

from gpu_runners.models.causal_base import CausalBase
from gpu_runners.models.chat_template import fold_system, render_chat

_MARK = "Zebrainput"


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """The texts before an input and after it, special tokens as they are spelled."""

    before: str
    after: str


def around_of(base: CausalBase, system: str) -> Around | None:
    """The texts around an input, by the base's chat template; None where the system message spells a special token,
    which a text cannot tell from the token itself."""
    if any(token in system for token in base.special_tokens):
        return None
    head = [{"role": "system", "content": system}] if system else []
    messages = [*head, {"role": "user", "content": _MARK}]
    chat = fold_system(messages) if base.template.folds_system else messages
    before, mark, after = render_chat(base.tokenizer, base.template, chat, tools=None).partition(_MARK)
    return Around(before=before, after=after) if mark else None


def modelfile(around: Around, *, begin: str, ends: list[str], max_new_tokens: int) -> str:
    """`begin` is the token that llama.cpp puts before every text by itself; "" where it puts none."""
    template = f"{_literal(around.before.removeprefix(begin))}{{{{ .Prompt }}}}{_literal(around.after)}"
    stops = "".join(f"PARAMETER stop {_in_quotes(end)}\n" for end in ends)
    return (
        "FROM ./base.gguf\nADAPTER ./adapter.gguf\n"
        f'TEMPLATE """{template}"""\n'
        f"PARAMETER temperature 0\nPARAMETER num_predict {max_new_tokens}\n{stops}"
    )


def _literal(text: str) -> str:
    """A text in a Go template between three quotation marks."""
    return text.replace("{{", '{{ "{{" }}').replace('"""', '{{ "\\"\\"\\"" }}')


def _in_quotes(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
