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
    """`places` are the teacher's tokens of the answer, each with the log-probs of the likeliest in its place; with
    `on_policy` the answer is the student's own."""

    text: str
    answer: str
    weight: float
    places: tuple[Place, ...] = ()
    on_policy: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """`ids` are prompt and completion, the end of sequence last; the first `n_prompt` are the prompt's (at least
    one). `soft` are the distributions to learn of the completion's tokens, None where the tokens alone are learnt; with
    `on_policy` they are all that is learnt, by the job's divergence."""

    text: str
    ids: tuple[int, ...]
    n_prompt: int
    weight: float
    soft: SoftTargets | None = None
    on_policy: bool = False

    @property
    def n_completion(self) -> int:
        return len(self.ids) - self.n_prompt

    @property
    def n_learnt(self) -> int:
        """The completion's tokens that count in the loss."""
        return self.soft.n_learnt if self.on_policy and self.soft is not None else self.n_completion


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoded:
    """`limit` is what an example may have: the job's max_tokens or the base's context, if that is less. `n_unmatched`
    rows have a teacher's tokens that are not the base's: they train on their tokens alone. `n_own_unmatched` of the
    student's own answers do: they are left out."""

    examples: list[Example]
    n_too_long: int
    limit: int
    n_unmatched: int = 0
    n_own_unmatched: int = 0

    @property
    def n_soft(self) -> int:
        """The number of examples of the teacher's answers with soft targets."""
        return sum(example.soft is not None and not example.on_policy for example in self.examples)

    @property
    def n_on_policy(self) -> int:
        """The number of examples that are the student's own answers."""
        return sum(example.on_policy for example in self.examples)


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
    if not isinstance(row, dict) or set(row) - {"soft_targets", "on_policy"} != {"input", "output", "weight"}:
        raise _invalid(f"line {n} is not {{input, output, weight}}, with or without soft_targets and on_policy")
    text, answer, weight = row["input"], row["output"], row["weight"]
    if not isinstance(text, str) or not isinstance(answer, str):
        raise _invalid(f"line {n} has an input or an output that is no text")
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 < weight < 1e6:
        raise _invalid(f"line {n} has a weight outside (0, 1e6)")
    places = read_places(row.get("soft_targets", []))
    if places is None:
        raise _invalid(f"line {n} has soft_targets that are not tokens with log-probs")
    on_policy = row.get("on_policy", False)
    if not isinstance(on_policy, bool) or (on_policy and not places):
        raise _invalid(f"line {n} is on_policy without soft_targets")
    return Row(text=text, answer=answer, weight=float(weight), places=places, on_policy=on_policy)


def encode(rows: Sequence[Row], *, base: CausalBase, system: str, max_tokens: int, soft_weight: float = 0.0) -> Encoded:
    """A row that does not fit is left out whole: a cut answer would teach a wrong end. `soft_weight` is the weight of
    the teacher's distributions, where rows have them. Raises JobFailed(nothing_to_train) where none fits."""
    limit = min(max_tokens, base.context)
    examples: list[Example] = []
    shortest, n_too_long, unmatched = None, 0, {False: 0, True: 0}
    is_soft = any(row.places and (row.on_policy or soft_weight) for row in rows)
    vocabulary = TokenTexts.of(base) if is_soft else None
    for row, prompt in zip(rows, prompts_of(base, system, [row.text for row in rows]), strict=True):
        ids = (*prompt, *completion_ids(base, row.answer))
        shortest = len(ids) if shortest is None else min(shortest, len(ids))
        if len(ids) > limit:
            n_too_long += 1
            continue
        example = Example(text=row.text, ids=ids, n_prompt=len(prompt), weight=row.weight)
        if vocabulary is not None and row.places and (row.on_policy or soft_weight):
            example = _with_places(example, row, vocabulary, soft_weight)
            unmatched[row.on_policy] += example.soft is None
        if example.soft is not None or not row.on_policy:
            examples.append(example)
    _check_tokens(unmatched[True], examples, base)
    if not examples:
        raise JobFailed(
            f"None of the {len(rows)} pairs fits into {limit} tokens (max_tokens {max_tokens}, context of "
            f"{base.name!r} {base.context}); the shortest has {shortest}.",
            code="nothing_to_train",
        )
    return Encoded(
        examples=examples,
        n_too_long=n_too_long,
        limit=limit,
        n_unmatched=unmatched[False],
        n_own_unmatched=unmatched[True],
    )


def _with_places(example: Example, row: Row, vocabulary: TokenTexts, soft_weight: float) -> Example:
    """The example with the teacher's distributions of its tokens, where these are the base's."""
    own = example.ids[example.n_prompt :]
    if row.on_policy:
        return replace(example, soft=vocabulary.token_distributions(own, row.places), on_policy=True)
    return replace(example, soft=vocabulary.soft_targets(own, row.places, weight=soft_weight))


def _check_tokens(n_own_unmatched: int, examples: Sequence[Example], base: CausalBase) -> None:
    """Raise JobFailed(tokenizers_differ) where the student's own answers do not match and none of them does."""
    if n_own_unmatched and not any(example.on_policy for example in examples):
        raise JobFailed(
            f"Of {n_own_unmatched} answers of the student none has the teacher's tokens, one by one, in the tokens of "
            f"{base.name!r}: on-policy distillation needs a base with the teacher's tokenizer. Take such a base, or "
            "leave train.causal.on_policy out.",
            code="tokenizers_differ",
        )


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
