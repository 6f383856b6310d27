"""The cost of a compile's runners, by how long they work on a trial: the part of an estimate that no price book
knows.

The rates are assumptions, and the estimate says so. An encoder's were measured on one thread of a 2026 server core
(docs of the embedded stack); a causal base's stand for one data-centre GPU with a base of half a billion parameters,
and fall with the size that the base's name tells. A runner on a CPU is tens of times slower than that: the bill follows
what it really took, never above the budget.
"""

import math
import re
from dataclasses import dataclass

from backend.domain.money.pricing import Price, cost_microusd, price_book
from backend.domain.planning.trials import TrialKind, first_trial, most_trials
from backend.domain.spec.defaults import answer_max_tokens, label_names, train_kind
from backend.domain.spec.models import Spec
from backend.domain.spec.outputs import JsonOutput, LabelOutput
from backend.domain.spec.task_prompt import system_prompt

BYTES_PER_TOKEN = 4  # of English; other scripts have more bytes a character, and more tokens
BYTES_PER_JSON_TOKEN = 3  # names, digits and punctuation
ANSWER_SHARE = 4  # of the longest answer, where no example says how long answers are
RUNNER_SKU = "runner.second"
RUNNER_START_S = 6.0
PAIR_EPOCH_S = 0.026  # both fits of an encoder
PREDICT_S = 0.012
CAUSAL_START_S = 30.0  # a base of half a billion parameters, read and moved to the device
CAUSAL_TRAIN_TOKENS_PER_S = 20_000
CAUSAL_WRITE_TOKENS_PER_S = 1_000  # of a batch of answers
CAUSAL_BASE_B = 0.5  # billions of parameters that these rates are for
MAX_GOLD_ALONE = 2000  # gold pairs that a head on the frozen base is fitted on, beside an encoder
_SIZE = re.compile(r"(?<![A-Za-z0-9.])(\d{1,4}(?:\.\d{1,3})?)[bB](?![A-Za-z0-9])")


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Micro-USD; low <= expected <= high."""

    low: int
    expected: int
    high: int

    def __add__(self, other: "Range") -> "Range":
        return Range(low=self.low + other.low, expected=self.expected + other.expected, high=self.high + other.high)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialSeconds:
    train: float
    evaluate: float


def trial_seconds(
    spec: Spec, kind: TrialKind, *, n_pairs: int, n_heldout: int, input_tokens: int, n_gold: int = 0
) -> TrialSeconds:
    """The expected time of one training and one evaluation on `n_pairs` and `n_heldout` inputs of so many tokens;
    `n_gold` of the pairs are gold, which an encoder's evaluation embeds once more."""
    if kind is TrialKind.ENCODER:
        return TrialSeconds(
            train=RUNNER_START_S + n_pairs * spec.train.epochs * PAIR_EPOCH_S,
            evaluate=RUNNER_START_S + (n_heldout + min(n_gold, MAX_GOLD_ALONE)) * PREDICT_S,
        )
    slower = max(1.0, base_size_b(spec.train.causal.base) / CAUSAL_BASE_B)
    answer = answer_tokens(spec)
    prompt = math.ceil(n_bytes(system_prompt(spec)) / BYTES_PER_TOKEN) + input_tokens
    trained = n_pairs * spec.train.causal.epochs * min(prompt + answer, spec.train.causal.max_tokens)
    written = 2 * n_heldout * answer  # by the adapter, and by the bare base beside it
    read = 2 * n_heldout * prompt
    return TrialSeconds(
        train=slower * (CAUSAL_START_S + trained / CAUSAL_TRAIN_TOKENS_PER_S),
        evaluate=slower * (CAUSAL_START_S + written / CAUSAL_WRITE_TOKENS_PER_S + read / CAUSAL_TRAIN_TOKENS_PER_S),
    )


def n_bytes(*texts: str) -> int:
    """The bytes of these texts: what tokens are counted by, since a tokenizer knows few whole words beyond Latin.

    >>> n_bytes("refund", "返金")
    12
    """
    return sum(len(text.encode()) for text in texts)


def base_size_b(name: str) -> float:
    """Billions of parameters as the base's name tells them; CAUSAL_BASE_B where it does not.

    >>> base_size_b("Qwen/Qwen2.5-7B-Instruct"), base_size_b("kolm-tiny-1")
    (7.0, 0.5)
    """
    match = _SIZE.search(name)
    return float(match[1]) if match else CAUSAL_BASE_B


def answer_tokens(spec: Spec) -> int:
    """Tokens of one answer, as the inline gold shows them, else a part of the most that the spec allows."""
    if isinstance(spec.output, LabelOutput):
        names = label_names(spec)
        return 2 + math.ceil(n_bytes(*names) / max(1, len(names)) / BYTES_PER_TOKEN)
    most, shown = answer_max_tokens(spec), spec.examples.inline
    if not shown:
        return -(-most // ANSWER_SHARE)
    per_token = BYTES_PER_JSON_TOKEN if isinstance(spec.output, JsonOutput) else BYTES_PER_TOKEN
    mean = n_bytes(*(example.output for example in shown)) / len(shown)
    return min(most, 2 + math.ceil(mean / per_token))


def assumption(spec: Spec) -> str:
    """Return what stands behind a causal trial's time, in the words of an estimate."""
    return (
        f"a causal trial of {spec.train.causal.base} on a GPU runner that trains {CAUSAL_TRAIN_TOKENS_PER_S:,} and "
        f"writes {CAUSAL_WRITE_TOKENS_PER_S:,} tokens a second of a base of 0.5 B parameters (assumed, not measured "
        "here; a CPU is many times slower)"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Trials:
    """The costs of the runners of all trials."""

    spec: Spec
    price: Price
    n_heldout: int
    input_tokens: int
    n_gold: int = 0

    def first_training(self, n_pairs: int) -> Range:
        return _runner(self.price, self._seconds(first_trial(self.spec).kind, n_pairs).train)

    def rest(self, n_pairs: int) -> Range:
        """The first trial's evaluation, the other kind's trial where the spec says auto, what an escalation may cost
        (the dearest trial once more), and the recipe pack."""
        first = first_trial(self.spec).kind
        cost = _runner(self.price, self._seconds(first, n_pairs).evaluate)
        kinds = {first}
        if train_kind(self.spec) == "auto":
            kinds.add(TrialKind.CAUSAL)
            cost += self._whole(TrialKind.CAUSAL, n_pairs)
        if most_trials(self.spec) > len(kinds):
            dearest = max(self._whole(kind, n_pairs).high for kind in kinds)
            cost += Range(low=0, expected=0, high=dearest)
        return cost + recipes_cost(self.spec, self.price)

    def _whole(self, kind: TrialKind, n_pairs: int) -> Range:
        seconds = self._seconds(kind, n_pairs)
        return _runner(self.price, seconds.train) + _runner(self.price, seconds.evaluate)

    def _seconds(self, kind: TrialKind, n_pairs: int) -> TrialSeconds:
        return trial_seconds(
            self.spec,
            kind,
            n_pairs=n_pairs,
            n_heldout=self.n_heldout,
            input_tokens=self.input_tokens,
            n_gold=self.n_gold,
        )


def recipes_cost(spec: Spec, price: Price | None = None) -> Range:
    """Return what the runner's job that makes a recipe pack costs; nothing where none is made."""
    recipes = spec.recipes
    if not recipes.enabled or not recipes.sources or train_kind(spec) == TrialKind.ENCODER:
        return Range(low=0, expected=0, high=0)
    slower = max(1.0, base_size_b(spec.train.causal.base) / CAUSAL_BASE_B)
    seconds = slower * CAUSAL_START_S + recipes.budget_s
    cost = _runner(price or price_book().prices[RUNNER_SKU], seconds)
    return Range(low=0, expected=cost.expected, high=cost.high)  # none is made below the gate


def _runner(price: Price, seconds: float) -> Range:
    low, expected, high = (cost_microusd(max(1, math.ceil(share * seconds)), price) for share in (0.2, 1, 4))
    return Range(low=low, expected=expected, high=high)
