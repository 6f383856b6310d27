"""The answers that recipe packs are replayed on: HumanEval's real samples, GSM8K, SNIPS as JSON, and prose.

Not part of the project: the folders `humaneval`, `gsm8k` and `snips` below $KOLM_DATA (default ../shared/data). A
reader gets the same from openai/human-eval and microsoft/CodeT (100 samples of CodeGen-16B a problem, temperature 0.8),
openai/grade-school-math and sonos/nlu-benchmark.

Tokens are those of a byte-level BPE of 8,192 that is trained on the observed side of each set (prompts and answers),
the way a model's tokenizer knows its usual texts; kolm-tiny-1 has 1,024 and cuts words into more pieces.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.bench.snips_data import read_snips

VOCABULARY = 8_192
END = 0
SAMPLES = "humaneval/codegen16B_temp0.8_100_samples.jsonl"

Texts = list[tuple[str, str]]  # (prompt, answer)


@dataclass(frozen=True, kw_only=True)
class ReplaySet:
    """`observed` and `measured` are (prompt, answer with its end token), as token ids."""

    name: str
    about: str
    observed: list[tuple[list[int], list[int]]]
    measured: list[tuple[list[int], list[int]]]
    token_texts: list[bytes]
    end: int = END


def replay_set(name: str, folder: Path, encode_with: "Callable[[Texts], Encoder] | None" = None) -> ReplaySet:
    """Raises FileNotFoundError where the data is not below `folder`."""
    about, observed, measured = SETS[name](folder)
    encoder = (encode_with or Encoder.trained_on)(observed)
    return ReplaySet(
        name=name,
        about=about,
        observed=[encoder.pair(*pair) for pair in observed],
        measured=[encoder.pair(*pair) for pair in measured],
        token_texts=encoder.token_texts,
        end=encoder.end,
    )


class Encoder:
    """`token_texts[END]` is empty."""

    def __init__(self, tokenizer: Any, token_texts: list[bytes], end: int = END) -> None:
        self._tokenizer, self.token_texts, self.end = tokenizer, token_texts, end

    @classmethod
    def of_tiny_base(cls, texts: Texts) -> "Encoder":
        """kolm-tiny-1's, whatever the texts."""
        from gpu_runners.speculation.vocabulary import token_texts
        from tests.bench.recipe_world import tiny_base

        base = tiny_base()
        return cls(base.tokenizer.backend_tokenizer, token_texts(base), base.eos_ids[0])

    @classmethod
    def trained_on(cls, texts: Texts) -> "Encoder":
        from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=VOCABULARY,
            special_tokens=["<|end|>"],
            initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
            show_progress=False,
        )
        tokenizer.train_from_iterator(sorted({part for pair in texts for part in pair}), trainer)
        texts_of = [b""] * tokenizer.get_vocab_size()
        for token, i in tokenizer.get_vocab().items():
            texts_of[i] = b"" if i == END else bytes(_BYTES[character] for character in token)
        return cls(tokenizer, texts_of)

    def pair(self, prompt: str, answer: str) -> tuple[list[int], list[int]]:
        return self.ids(prompt), [*self.ids(answer), self.end]

    def ids(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)


def _humaneval(folder: Path, n_observed: int, n_measured: int, *, by: str) -> tuple[str, Texts, Texts]:
    problems = _rows(folder / SAMPLES)
    if by == "problem":
        observed = [(row["prompt"], text) for row in problems[0::2] for text in row["samples"][:n_observed]]
        measured = [(row["prompt"], text) for row in problems[1::2] for text in row["samples"][:n_measured]]
        about = f"the first {n_observed} samples of every second problem; {n_measured} of each of the others"
    else:
        observed = [(row["prompt"], text) for row in problems for text in row["samples"][0::2][:n_observed]]
        measured = [(row["prompt"], text) for row in problems for text in row["samples"][1::2][:n_measured]]
        about = f"every second sample of each problem ({n_observed}); {n_measured} of the others"
    return about, observed, measured


def _gsm8k(folder: Path) -> tuple[str, Texts, Texts]:
    train, test = _rows(folder / "gsm8k" / "train.jsonl"), _rows(folder / "gsm8k" / "test.jsonl")
    as_pairs: Callable[[Any], Texts] = lambda rows: [(row["question"], row["answer"]) for row in rows]  # noqa: E731
    return "the worked answers of the training side; of the test side", as_pairs(train), as_pairs(test)


def _prose(folder: Path) -> tuple[str, Texts, Texts]:
    train, test = _rows(folder / "gsm8k" / "train.jsonl"), _rows(folder / "gsm8k" / "test.jsonl")
    about = "GSM8K's questions as answers, without a prompt: stories by many writers; training side, test side"
    return about, [("", row["question"]) for row in train], [("", row["question"]) for row in test]


def _snips(folder: Path) -> tuple[str, Texts, Texts]:
    snips = read_snips(folder)
    train, validate = ([(u.text, json.dumps(u.answer, ensure_ascii=False)) for u in side] for side in
                       (snips.train, snips.validate))  # fmt: skip
    return "intent and slots as JSON; training side, validation side", train, validate


def _orders(folder: Path) -> tuple[str, Texts, Texts]:
    from tests.bench.recipe_world import taught

    _, rows, _ = taught("orders", folder)
    pairs = [(row.input, row.output) for row in rows]
    return (
        "mails and orders of the built-in grammar; three in four, the others",
        [pair for i, pair in enumerate(pairs) if i % 4],
        pairs[::4],
    )


def _rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines() if line]


def _byte_alphabet() -> dict[str, int]:
    shown = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in shown]
    return {chr(byte): byte for byte in shown} | {chr(0x100 + n): byte for n, byte in enumerate(hidden)}


_BYTES = _byte_alphabet()
SETS: dict[str, Callable[[Path], tuple[str, Texts, Texts]]] = {
    "HumanEval, other problems": lambda folder: _humaneval(folder, 50, 10, by="problem"),
    "HumanEval, other samples": lambda folder: _humaneval(folder, 25, 5, by="sample"),
    "GSM8K": _gsm8k,
    "SNIPS as JSON": _snips,
    "prose": _prose,
    "orders": _orders,
}


def observed_answers(one: ReplaySet) -> Sequence[list[int]]:
    return [answer for _, answer in one.observed]
