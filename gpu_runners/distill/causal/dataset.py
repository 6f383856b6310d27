"""Pairs of input and answer: read strictly, made into tokens, split once for validation.

What is trained is the answer and its end of sequence; the prompt before it is only read.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from gpu_runners.distill.causal.soft_targets import Place, SoftTargets, TokenTexts, read_places
from gpu_runners.errors import JobFailed
from gpu_runners.models.causal_base import CausalBase
from gpu_runners.models.chat import completion_ids, prompts_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """`places` are the teacher's tokens of the answer, each with the log-probs of the likeliest in its place."""

    text: str
    answer: str
    weight: float
    places: tuple[Place, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """`ids` are prompt and completion, the end of sequence last; the first `n_prompt` are the prompt's (at least
    one). `soft` are the distributions to learn of the completion's tokens, None where the tokens alone are learnt."""

    text: str
    ids: tuple[int, ...]
    n_prompt: int
    weight: float
    soft: SoftTargets | None = None

    @property
    def n_completion(self) -> int:
        return len(self.ids) - self.n_prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoded:
    """`limit` is what an example may have: the job's max_tokens or the base's context, if that is less. `n_unmatched`
    rows have a teacher's tokens that are not the base's: they train on their tokens alone."""

    examples: list[Example]
    n_too_long: int
    limit: int
    n_unmatched: int = 0

    @property
    def n_soft(self) -> int:
        """The number of examples with soft targets."""
        return sum(example.soft is not None for example in self.examples)


def read_rows(data: bytes) -> list[Row]:
    """Parse the dataset blob, one `{"input": str, "output": str, "weight": float}` a line. Raises
    JobFailed(invalid_dataset) naming the line."""
    rows = []
    try:
        for n, line in enumerate(data.decode("utf-8").split("\n"), start=1):
            if line.strip():
                rows.append(_row(n, json.loads(line)))
    except ValueError as error:
        raise _invalid(f"it is not JSON lines in UTF-8 ({error})") from error
    if not rows:
        raise _invalid("it is empty")
    return rows


def _row(n: int, row: object) -> Row:
    if not isinstance(row, dict) or set(row) - {"soft_targets"} != {"input", "output", "weight"}:
        raise _invalid(f"line {n} is not {{input, output, weight}}, with or without soft_targets")
    text, answer, weight = row["input"], row["output"], row["weight"]
    if not isinstance(text, str) or not isinstance(answer, str):
        raise _invalid(f"line {n} has an input or an output that is no text")
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 < weight < 1e6:
        raise _invalid(f"line {n} has a weight outside (0, 1e6)")
    places = read_places(row.get("soft_targets", []))
    if places is None:
        raise _invalid(f"line {n} has soft_targets that are not tokens with log-probs")
    return Row(text=text, answer=answer, weight=float(weight), places=places)


def encode(rows: Sequence[Row], *, base: CausalBase, system: str, max_tokens: int, soft_weight: float = 0.0) -> Encoded:
    """A row that does not fit is left out whole: a cut answer would teach a wrong end. `soft_weight` is the weight of
    the teacher's distributions, where rows have them. Raises JobFailed(nothing_to_train) where none fits."""
    limit = min(max_tokens, base.context)
    examples: list[Example] = []
    shortest, n_unmatched = None, 0
    vocabulary = TokenTexts.of(base) if soft_weight and any(row.places for row in rows) else None
    for row, prompt in zip(rows, prompts_of(base, system, [row.text for row in rows]), strict=True):
        ids = (*prompt, *completion_ids(base, row.answer))
        shortest = len(ids) if shortest is None else min(shortest, len(ids))
        if len(ids) <= limit:
            example = Example(text=row.text, ids=ids, n_prompt=len(prompt), weight=row.weight)
            if vocabulary is not None and row.places:
                soft = vocabulary.soft_targets(ids[len(prompt) :], row.places, weight=soft_weight)
                example, n_unmatched = replace(example, soft=soft), n_unmatched + (soft is None)
            examples.append(example)
    if not examples:
        raise JobFailed(
            f"None of the {len(rows)} pairs fits into {limit} tokens (max_tokens {max_tokens}, context of "
            f"{base.name!r} {base.context}); the shortest has {shortest}.",
            code="nothing_to_train",
        )
    n_too_long = len(rows) - len(examples)
    return Encoded(examples=examples, n_too_long=n_too_long, limit=limit, n_unmatched=n_unmatched)


def split(examples: Sequence[Example], *, share: float, seed: int) -> tuple[list[Example], list[Example]]:
    """(train, validation). Who goes is decided by a hash of the input, so adding a pair does not reshuffle the others,
    and equal inputs fall on one side. One input at least goes where there are four; three at least stay."""
    texts = sorted({example.text for example in examples}, key=lambda text: _rank(text, seed))
    n = min(max(1, round(share * len(texts))), len(texts) - 3) if share > 0 and len(texts) >= 4 else 0
    held = set(texts[:n])
    return [e for e in examples if e.text not in held], [e for e in examples if e.text in held]


def _rank(text: str, seed: int) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), key=seed.to_bytes(8, "big", signed=True)).digest()


def _invalid(why: str) -> JobFailed:
    return JobFailed(f"The job's dataset cannot be used: {why}.", code="invalid_dataset")
