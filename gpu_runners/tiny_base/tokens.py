"""The tiny base's own tokenizer: byte-level BPE, so that any text round-trips.

White space is a token of its own and digits stand alone: a word is then the same tokens in the input and inside the
quotes of the answer, which is what makes copying learnable in a minute. What JSON glues together ('", "') is one.
"""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

END, PAD = "<|end|>", "<|pad|>"
SYSTEM, USER, ASSISTANT = "<|system|>", "<|user|>", "<|assistant|>"
SPECIAL = [END, PAD, SYSTEM, USER, ASSISTANT]
VOCABULARY = 1024
_GLUE = r'(?:[,:] )?[{}\[\]":,]*"[:,]? ?[{}\[\]"]*|[{}\[\]]+'
# what every task of a kind says is one token: an example is half as long, and learnt in half the time
_PHRASES = (
    "Answer with JSON alone that has these fields: ",
    "Answer with JSON alone that fits this schema: ",
    "Answer with one of these labels alone: ",
    '{"additionalProperties":false,"properties":{"',
    '":{"type":"string"}',
    '":{"type":"integer"}',
    '","type":"object"}',
    '},"type":"object"}',
)
_WHOLE = "|".join(re.escape(phrase) for phrase in _PHRASES)
_PIECES = rf"{_WHOLE}|{_GLUE}|\p{{L}}+|\p{{N}}|\s|[^\s\p{{L}}\p{{N}}]"

# a tool's message is a user's; the tools themselves are named after the system message
CHAT_TEMPLATE = (
    "{%- if messages[0]['role'] == 'system' %}{%- set system = messages[0]['content'] %}{%- set rest = messages[1:] %}"
    "{%- else %}{%- set system = '' %}{%- set rest = messages %}{%- endif %}"
    "{%- if tools %}{%- set system = system + '\\nTools: ' + (tools | tojson) %}{%- endif %}"
    "{%- if system %}{{- '<|system|>' + system + '<|end|>' }}{%- endif %}"
    "{%- for message in rest %}"
    "{%- if message['role'] in ('user', 'tool') %}{{- '<|user|>' + message['content'] + '<|end|>' }}"
    "{%- elif message['role'] == 'assistant' %}{{- '<|assistant|>' + (message['content'] or '') + '<|end|>' }}"
    "{%- else %}{{- raise_exception('A system message comes first, then user and assistant messages.') }}{%- endif %}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|assistant|>' }}{%- endif %}"
)


def train_tokenizer(texts: Iterable[str], *, context: int) -> Any:
    """A `PreTrainedTokenizerFast` with the chat template. The same texts give the same vocabulary."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=SPECIAL,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    made: Any = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=END,
        pad_token=PAD,
        model_max_length=context,
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
    )
    return made


def save_tokenizer(tokenizer: Any, folder: Path) -> None:
    """tokenizer.json with the chat template in tokenizer_config.json, where every reader looks for it."""
    tokenizer.save_pretrained(str(folder), save_jinja_files=False)
