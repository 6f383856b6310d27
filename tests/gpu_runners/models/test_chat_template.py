"""The templates of seventeen model families (templates/INDEX.md): what ends a turn, whether there is a system role,
that nothing is thought and that no prompt knows today's date."""

import datetime
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from gpu_runners.errors import JobFailed
from gpu_runners.models.chat_template import DATE, ChatTemplate, fold_system, read_template, render_chat

TEMPLATES = Path(__file__).parent / "templates"
SYSTEM, USER = {"role": "system", "content": "Be brief."}, {"role": "user", "content": "Where is it?"}
# family: (bos, eos of the tokenizer's config, further special tokens, end of turn, is the system message folded in)
FAMILIES: dict[str, tuple[str, str, tuple[str, ...], str, bool]] = {
    "llama-3.1": ("<|begin_of_text|>", "<|eot_id|>", ("<|start_header_id|>", "<|end_header_id|>"), "<|eot_id|>", False),
    "llama-3.2": ("<|begin_of_text|>", "<|eot_id|>", ("<|start_header_id|>", "<|end_header_id|>"), "<|eot_id|>", False),
    "qwen2.5": ("", "<|im_end|>", ("<|im_start|>", "<|endoftext|>"), "<|im_end|>", False),
    "qwen3": ("", "<|im_end|>", ("<|im_start|>", "<|endoftext|>", "<think>", "</think>"), "<|im_end|>", False),
    "gemma-2": ("<bos>", "<eos>", ("<start_of_turn>", "<end_of_turn>"), "<end_of_turn>", True),
    "gemma-3": ("<bos>", "<eos>", ("<start_of_turn>", "<end_of_turn>"), "<end_of_turn>", False),
    "mistral-v0.1": ("<s>", "</s>", (), "</s>", True),
    "mistral-v0.3": ("<s>", "</s>", ("[INST]", "[/INST]"), "</s>", False),
    "phi-3": ("<s>", "<|endoftext|>", ("<|system|>", "<|user|>", "<|assistant|>", "<|end|>"), "<|end|>", False),
    "phi-3-medium": ("<s>", "<|endoftext|>", ("<|user|>", "<|assistant|>", "<|end|>"), "<|end|>", True),
    "phi-4": ("", "<|im_end|>", ("<|im_start|>", "<|im_sep|>", "<|endoftext|>"), "<|im_end|>", False),
    "deepseek-r1-distill": (
        "<｜begin▁of▁sentence｜>",
        "<｜end▁of▁sentence｜>",
        ("<｜User｜>", "<｜Assistant｜>"),
        "<｜end▁of▁sentence｜>",
        False,
    ),
    "glm-4": ("", "<|endoftext|>", ("[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>"), "<|user|>", False),
    "glm-4.5": ("", "<|endoftext|>", ("[gMASK]", "<sop>", "<|system|>", "<|user|>", "<think>"), "<|user|>", False),
    "olmo-2": ("<|endoftext|>", "<|endoftext|>", (), "<|endoftext|>", False),
    "granite-3.3": ("", "<|end_of_text|>", ("<|start_of_role|>", "<|end_of_role|>"), "<|end_of_text|>", False),
    "smollm2": ("<|im_start|>", "<|im_end|>", ("<|endoftext|>",), "<|im_end|>", False),
}
EVERY = pytest.mark.parametrize("family", list(FAMILIES))


@cache
def tokenizer_of(family: str) -> Any:
    """A byte-level tokenizer with the family's special tokens and its template."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    bos, eos, more, *_ = FAMILIES[family]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={letter: i for i, letter in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast: Any = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token=bos or None, eos_token=eos, additional_special_tokens=list(more)
    )
    fast.chat_template = (TEMPLATES / f"{family}.jinja").read_text()
    return fast


@cache
def template_of(family: str) -> ChatTemplate:
    bos, eos, more, *_ = FAMILIES[family]
    stops = (eos, "<|user|>") if family.startswith("glm") else (eos,)
    found = read_template(tokenizer_of(family), special_tokens=[t for t in (bos, eos, *more) if t], stops=stops)
    assert found is not None
    return found


def prompt(family: str, *messages: dict[str, str]) -> str:
    template = template_of(family)
    chat = fold_system(messages) if template.folds_system else list(messages)
    return render_chat(tokenizer_of(family), template, chat)


def test_every_template_is_a_family_here_and_in_the_index() -> None:
    assert {path.stem for path in TEMPLATES.glob("*.jinja")} == set(FAMILIES)
    index = (TEMPLATES / "INDEX.md").read_text()
    assert [family for family in FAMILIES if f"| {family} |" not in index] == []


@EVERY
def test_the_end_of_turn_is_the_templates_and_one_token(family: str) -> None:
    end = FAMILIES[family][3]
    assert template_of(family).end == end
    assert len(tokenizer_of(family)(end, add_special_tokens=False)["input_ids"]) == 1


@EVERY
def test_the_system_message_and_the_input_are_in_the_prompt_once(family: str) -> None:
    assert template_of(family).folds_system is FAMILIES[family][4]
    text = prompt(family, SYSTEM, USER)
    assert (text.count("Be brief."), text.count("Where is it?")) == (1, 1)
    assert text.index("Be brief.") < text.index("Where is it?")


@EVERY
def test_no_prompt_knows_todays_date(family: str) -> None:
    today = datetime.datetime.now(datetime.UTC)
    for text in (prompt(family, USER), prompt(family, SYSTEM, USER)):
        assert not [form for form in ("%d %b %Y", "%B %d, %Y", "%Y-%m-%d", "%Y") if today.strftime(form) in text]


@EVERY
def test_no_prompt_leaves_a_thought_open(family: str) -> None:
    text = prompt(family, SYSTEM, USER)
    assert text.count("<think>") == text.count("</think>")


@pytest.mark.parametrize(
    ("family", "date"), [("llama-3.1", DATE), ("llama-3.2", DATE), ("granite-3.3", "July 26, 2024")]
)
def test_a_template_that_writes_a_date_writes_the_same_one_always(family: str, date: str) -> None:
    assert date in prompt(family, USER)


@pytest.mark.parametrize(
    ("family", "tail"),
    [
        ("qwen3", "<|im_start|>assistant\n<think>\n\n</think>\n\n"),
        ("deepseek-r1-distill", "<｜Assistant｜><think>\n\n</think>\n\n"),
        ("glm-4.5", "/nothink<|assistant|>\n<think></think>\n"),
        ("qwen2.5", "<|im_start|>assistant\n"),
    ],
)
def test_the_prompt_ends_where_an_answer_without_a_thought_begins(family: str, tail: str) -> None:
    assert prompt(family, USER).endswith(tail)


@EVERY
def test_an_answered_turn_begins_with_its_prompt(family: str) -> None:
    """What is learnt behind the prompt is what the template itself writes there, but for thoughts that only the prompt
    opens."""
    if family == "deepseek-r1-distill":
        assert "<think>" in prompt(family, USER)
        return
    answered = tokenizer_of(family).apply_chat_template(
        [USER, {"role": "assistant", "content": "Here."}], tokenize=False, date_string=DATE, enable_thinking=False
    )
    if family != "granite-3.3":  # its date is today's where the clock is not ours
        assert answered.startswith(prompt(family, USER))


def test_a_folded_system_message_begins_the_first_user_turn_alone() -> None:
    chat = [SYSTEM, USER, {"role": "assistant", "content": "Here."}, {"role": "user", "content": "And now?"}]
    assert fold_system(chat) == [{"role": "user", "content": "Be brief.\n\nWhere is it?"}, *chat[2:]]
    assert fold_system([USER]) == [USER]


def test_a_system_message_without_a_user_turn_behind_it_stays() -> None:
    assert fold_system([SYSTEM, {"role": "assistant", "content": "Hello."}])[0] is SYSTEM


def test_a_system_message_is_folded_into_a_list_of_parts() -> None:
    parts = [{"type": "text", "text": "Where is it?"}]
    folded = fold_system([{"role": "system", "content": parts}, {"role": "user", "content": parts}])
    assert folded == [{"role": "user", "content": [{"type": "text", "text": "Where is it?\n\n"}, *parts]}]


def test_a_template_that_drops_a_users_text_is_not_used() -> None:
    tokenizer = tokenizer_of("qwen2.5")
    wants_parts = "{% for m in messages %}{% for p in m.content if p is mapping %}{{ p.text }}{% endfor %}{% endfor %}"
    before, tokenizer.chat_template = tokenizer.chat_template, wants_parts
    try:
        assert read_template(tokenizer, special_tokens=[], stops=[]) is None
    finally:
        tokenizer.chat_template = before


@pytest.mark.parametrize("start", ["\n\nX", "  {% if true %}X{% endif %}", "X", "{{ 'X' }}"])
def test_the_pinned_clock_changes_nothing_else_of_a_template(start: str) -> None:
    tokenizer = tokenizer_of("smollm2")
    before = tokenizer.chat_template
    try:
        tokenizer.chat_template = start
        plain = render_chat(tokenizer, ChatTemplate(), [USER])
        tokenizer.chat_template = f"{start}{{{{ strftime_now('%Y-%m-%d %A %H:%M') }}}}"
        assert render_chat(tokenizer, ChatTemplate(), [USER]) == f"{plain}2024-07-26 Friday 00:00"
    finally:
        tokenizer.chat_template = before


@contextmanager
def written(template: str) -> Iterator[Any]:
    """A tokenizer with this template."""
    tokenizer = tokenizer_of("smollm2")
    before, tokenizer.chat_template = tokenizer.chat_template, template
    try:
        yield tokenizer
    finally:
        tokenizer.chat_template = before


@pytest.mark.parametrize(
    ("opens", "closes"),
    [
        ("<think>", "</think>"),
        ("<reasoning>\n", "</reasoning>"),
        ("<seed:think>", "</seed:think>"),
        ("◁think▷", "◁/think▷"),
        ("[THINK]", "[/THINK]"),
        ("[REASONING]\n", "[/REASONING]"),
        ("<|begin_of_thought|>\n\n", "<|end_of_thought|>"),
        ("<|START_THINKING|>", "<|END_THINKING|>"),
        ("<answer>", ""),
        ("[think>", ""),
    ],
)
def test_a_thought_that_a_prompt_opens_is_closed_by_its_own_tag(opens: str, closes: str) -> None:
    turns = "{% for m in messages %}{{ m.role }}: {{ m.content }};{% endfor %}"
    with written(f"{turns}{{% if add_generation_prompt %}}assistant: {{{{ {opens!r} }}}}{{% endif %}}") as tokenizer:
        template = read_template(tokenizer, special_tokens=[], stops=[])
        assert template is not None
        assert template.answer_head == (f"\n{closes}\n\n" if closes else "")


def test_the_pinned_clock_writes_what_a_clock_would_have_written_that_day() -> None:
    then = datetime.datetime(2024, 7, 26)
    codes = "aAbBcdefFDThHIjmMpRSuwxXyYzZ"
    form = " | ".join([*(f"%{code}" for code in codes), *(f"%-{code}" for code in "dmHIMSjy"), "100 %%d", "100%%"])
    with written(f"{{{{ messages[0].content }}}}{{{{ strftime_now({form!r}) }}}}") as tokenizer:
        assert render_chat(tokenizer, ChatTemplate(), [USER]) == USER["content"] + then.strftime(form)


@pytest.mark.parametrize("form", ["%d %Q", "week %V of %Y", "%"])
def test_a_date_that_the_pinned_clock_does_not_write_is_refused_in_a_sentence(form: str) -> None:
    with written(f"{{{{ messages[0].content }}}}{{{{ strftime_now({form!r}) }}}}") as tokenizer:
        with pytest.raises(JobFailed, match="writes the date") as caught:
            read_template(tokenizer, special_tokens=[], stops=[])
        assert (caught.value.code, form in caught.value.message) == ("bad_chat", True)
