"""The price of a label call of this compile by how many answers it is asked for, and how many that should be."""

import math
from dataclasses import dataclass, replace
from decimal import Decimal

from django.db.models import F, Func, IntegerField

from backend.compiles.models import Candidate, TeacherCall
from backend.compiles.states import ANSWERED_STATES, LABEL_CALLS
from backend.domain.labeling.call_sizes import CallPrice, size_again, size_at_first
from backend.domain.spec.parsing import first_votes, most_votes, votes_as_needed
from workers.labeling.asking import choices_a_call, label_call
from workers.labeling.posteriors import Weighed
from workers.step.durable import CompileRun
from workers.step.teacher_calls import with_room, worst_cost
from workers.step.teacher_session import learnt_thoughts

USD = Decimal(1_000_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelCalls:
    """The calls that a compile may buy next: `at_first` votes by a call about a new row, `again` by one about an unsure
    row; what a call is expected to cost, and what one about the longest input may cost. Its teacher thinks `thoughts`
    tokens an answer at most."""

    at_first: int
    again: int
    expected: CallPrice
    worst: CallPrice
    thoughts: int


def next_calls(run: CompileRun, weighed: Weighed, *, is_changing: bool, pair_usd: Decimal) -> LabelCalls:
    """Return what the next calls ask for. Until a pilot has shown that the teacher's answers change, a new row is asked
    for one. Training on a row costs `pair_usd`."""
    longest = max(weighed.pool.rows, key=lambda row: len(row.text.encode()))
    per_call, thoughts = choices_a_call(run), learnt_thoughts(run.tenant_id, run.spec.teacher)
    worst = _worst_price(run, longest, per_call=per_call, thoughts=thoughts)
    expected = _price_so_far(run, worst)
    noise, most = weighed.noise, min(most_votes(run.spec), per_call)
    at_first, again = first_votes(run.spec), 1
    if votes_as_needed(run.spec):
        at_first = size_at_first(
            expected,
            pair_usd,
            error=float(weighed.believed.mean(axis=0) @ noise.error),
            repeat=noise.repeat,
            n_labels=len(weighed.pool.labels),
            most=most if is_changing else 1,
        )
        again = size_again(expected, repeat=noise.repeat, most=min(most, most_votes(run.spec) - 1))
    return LabelCalls(at_first=at_first, again=again, expected=expected, worst=worst, thoughts=thoughts)


def worst_of(run: CompileRun, row: Candidate, n: int, calls: LabelCalls) -> int:
    """Return the most that `n` answers about this row can be billed, micro-USD."""
    price = _worst_price(run, row, per_call=calls.worst.per_call, thoughts=calls.thoughts)
    return math.ceil(price.of(n) * USD)


def _worst_price(run: CompileRun, row: Candidate, *, per_call: int, thoughts: int) -> CallPrice:
    """The most that calls about this row can be billed."""
    price = run.prices.of(run.spec.teacher.model)
    plans = [label_call(run, row, n) for n in (1, 2)]
    one, two = (Decimal(worst_cost(price, with_room(plan.request, thoughts))) / USD for plan in plans)
    return CallPrice(first_usd=one, further_usd=two - one, per_call=per_call)


def _price_so_far(run: CompileRun, worst: CallPrice) -> CallPrice:
    """The price by what the calls so far were billed, prompt and answers apart; at most the worst."""
    n_choices: Func = Func(F("choices"), function="jsonb_array_length", output_field=IntegerField())
    calls = TeacherCall.objects.filter(tenant_id=run.tenant_id, compile_id=run.compile_id, key__startswith=LABEL_CALLS)
    with run.transaction():
        made = list(
            calls.filter(state__in=ANSWERED_STATES).values_list(
                "cost_microusd", "input_tokens", "cached_tokens", "output_tokens", n_choices
            )
        )
    if not made:
        return worst
    price = run.prices.of(run.spec.teacher.model)
    cost, n_input, n_cached, n_output, n_answers = (sum(column) for column in zip(*made, strict=True))
    listed = price.cost_microusd(input_tokens=n_input, cached_tokens=n_cached, output_tokens=n_output)
    of_output = price.cost_microusd(input_tokens=0, output_tokens=n_output)
    share = Decimal(of_output) / listed if listed else Decimal(0)
    further = share * cost / max(n_answers, 1) / USD
    first = (1 - share) * cost / len(made) / USD + further
    return replace(worst, first_usd=min(first, worst.first_usd), further_usd=min(further, worst.further_usd))
