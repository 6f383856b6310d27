"""The cost of a compile's runners, by the work of a trial: the tokens that are trained on, read and written, at the
prices of a book (`money.runner_work`).

How many tokens there will be is counted without a tokenizer (`token_counts`), from the texts that the task shows and
the number of pairs that is expected to train.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from backend.domain.money.pricing import PriceBook, price_book
from backend.domain.money.runner_work import (
    Work,
    WorkSku,
    bills_work,
    causal_answers,
    causal_training,
    cost_of,
    drafted_within,
    drafting,
    encoder_reading,
    encoder_training,
    together,
)
from backend.domain.planning.token_counts import BYTES_PER_TOKEN as BYTES_PER_TOKEN
from backend.domain.planning.token_counts import Counting, count_tokens
from backend.domain.planning.trials import TrialKind, first_trial, may_be_causal, most_trials
from backend.domain.spec.defaults import answer_max_tokens, first_votes, label_names, train_kind
from backend.domain.spec.models import Spec
from backend.domain.spec.outputs import JsonOutput, LabelOutput
from backend.domain.spec.task_prompt import system_prompt

BYTES_PER_JSON_TOKEN = 3  # names, digits and punctuation
ANSWER_SHARE = 4  # of the longest answer, where no example says how long answers are
CHAT_TOKENS = 16  # of a causal base's chat template around a prompt
MAX_GOLD_ALONE = 2000  # gold pairs that a head on the frozen base is fitted on, beside an encoder
LOW_SHARE, HIGH_TIMES = 0.4, 4  # of the expected tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Micro-USD; low <= expected <= high."""

    low: int
    expected: int
    high: int

    def __add__(self, other: "Range") -> "Range":
        return Range(low=self.low + other.low, expected=self.expected + other.expected, high=self.high + other.high)


def n_bytes(*texts: str) -> int:
    """The bytes of these texts: what tokens are counted by, since a tokenizer knows few whole words beyond Latin.

    >>> n_bytes("refund", "返金")
    12
    """
    return sum(len(text.encode()) for text in texts)


def answer_tokens(spec: Spec, by: Counting = Counting.MODEL, shown: Sequence[str] = ()) -> int:
    """Tokens of one answer, as the gold's outputs show them (`shown`, or the inline ones), else a part of the most that
    the spec allows."""
    end = 1 if by is Counting.MODEL else 0
    if isinstance(spec.output, LabelOutput):
        names = label_names(spec)
        return max(1, end + round(sum(count_tokens(name, by) for name in names) / max(1, len(names))))
    most = answer_max_tokens(spec)
    texts = list(shown) or [example.output for example in spec.examples.inline]
    if not texts:
        return -(-most // ANSWER_SHARE)
    if by is Counting.MODEL and isinstance(spec.output, JsonOutput):
        mean = n_bytes(*texts) / BYTES_PER_JSON_TOKEN / len(texts)
    else:
        mean = sum(count_tokens(text, by) for text in texts) / len(texts)
    return min(most, max(1, end + math.ceil(mean)))


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialWork:
    train: Work
    evaluate: Work


@dataclass(frozen=True, slots=True, kw_only=True)
class Trials:
    """The costs of the runners of all trials. `encoded` are the tokens that an encoder reads of an input on the mean,
    `input_tokens` those that a causal base reads of it, `answer` those that it writes; `n_gold` of the pairs are gold,
    which has one answer, and which an encoder's evaluation embeds once more."""

    spec: Spec
    book: PriceBook
    n_heldout: int
    encoded: float
    input_tokens: float
    answer: int
    n_gold: int = 0

    def first_training(self, n_pairs: int) -> Range:
        return work_range(self.work(first_trial(self.spec).kind, n_pairs).train, self.book)

    def rest(self, n_pairs: int) -> Range:
        """The first trial's evaluation, the other kind's trial where the spec says auto, what an escalation may cost
        (the dearest trial once more), and the recipe pack."""
        first = first_trial(self.spec).kind
        cost = work_range(self.work(first, n_pairs).evaluate, self.book)
        kinds = {first}
        if train_kind(self.spec) == "auto":
            kinds.add(TrialKind.CAUSAL)
            cost += self._whole(TrialKind.CAUSAL, n_pairs)
        if most_trials(self.spec) > len(kinds):
            dearest = max(self._whole(kind, n_pairs).high for kind in kinds)
            cost += Range(low=0, expected=0, high=dearest)
        return cost + recipes_cost(self.spec, self.book)

    def work(self, kind: TrialKind, n_pairs: int) -> TrialWork:
        """The expected work of one training on `n_pairs` and of one evaluation."""
        train = self.spec.train
        if kind is TrialKind.ENCODER:
            epochs = 1 if train.student == "frozen" else train.passes(n_pairs)
            read = (self.n_heldout + min(self.n_gold, MAX_GOLD_ALONE)) * self.encoded
            return TrialWork(
                train=encoder_training(round(n_pairs * epochs * self.encoded)),
                evaluate=encoder_reading(round(read)),
            )
        if kind is TrialKind.SPANS:
            return TrialWork(
                train=encoder_training(round(n_pairs * train.spans.passes(n_pairs) * self.encoded)),
                evaluate=encoder_reading(round(self.n_heldout * self.encoded)),
            )
        base, options = train.causal.base, train.causal.options()
        prompt = count_tokens(system_prompt(self.spec), Counting.MODEL) + CHAT_TOKENS + self.input_tokens
        n_answers = n_pairs + (samples_per_input(self.spec) - 1) * max(0, n_pairs - self.n_gold)
        length = min(prompt + self.answer, train.causal.max_tokens)
        trained = length * (n_answers - round(n_answers * options.validation_share))
        training = causal_training(base, round(trained * train.causal.epochs))
        if train.causal.on_policy:
            n_own = own_answers(self.spec, n_pairs - self.n_gold)
            again = length * (n_pairs - round(n_pairs * options.validation_share)) * train.causal.epochs
            training = together(
                training,
                causal_answers(base, n_read=round(n_own * prompt), n_written=n_own * self.answer),
                causal_training(base, round(again)),
            )
        return TrialWork(
            train=training,
            evaluate=causal_answers(  # by the adapter, and by the bare base beside it
                base, n_read=round(2 * self.n_heldout * prompt), n_written=2 * self.n_heldout * self.answer
            ),
        )

    def _whole(self, kind: TrialKind, n_pairs: int) -> Range:
        work = self.work(kind, n_pairs)
        return work_range(work.train, self.book) + work_range(work.evaluate, self.book)


def own_answers(spec: Spec, n_labelled: int) -> int:
    """Count the answers of its own that a student gives to so many labelled inputs, for on-policy distillation."""
    return math.ceil(spec.train.causal.on_policy * max(0, n_labelled)) if may_be_causal(spec) else 0


def samples_per_input(spec: Spec) -> float:
    """The answers to an input that a causal base is expected to train on. Where all different ones do: of texts all, of
    JSON values the first and half of the others."""
    if spec.train.causal.samples != "all":
        return 1.0
    n = first_votes(spec)
    return (1 + n) / 2 if isinstance(spec.output, JsonOutput) else float(n)


def recipes_cost(spec: Spec, book: PriceBook | None = None) -> Range:
    """Return what the runner's job that makes a recipe pack costs; nothing where none is made. Of a compile with a book
    of before, about what it will cost."""
    recipes = spec.recipes
    if not recipes.enabled or not recipes.sources or train_kind(spec) in (TrialKind.ENCODER, TrialKind.SPANS):
        return Range(low=0, expected=0, high=0)
    prices = book if book is not None and bills_work(book) else price_book()
    work = {**drafting(spec.train.causal.base, 0), WorkSku.CAUSAL_DRAFT: drafted_within(recipes.budget_s, prices)}
    cost = work_range(work, prices)
    return Range(low=0, expected=cost.expected, high=cost.high)  # none is made below the gate


def work_range(work: Work, book: PriceBook) -> Range:
    """The cost of work of about so many tokens: of a job, and of some of them or several times as many."""
    jobs = (WorkSku.ENCODER_JOB, WorkSku.CAUSAL_JOB)

    def times(share: float) -> int:
        return cost_of({sku: n if sku in jobs else math.floor(share * n) for sku, n in work.items()}, book)

    return Range(low=times(LOW_SHARE), expected=times(1), high=times(HIGH_TIMES))
