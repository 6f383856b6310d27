"""The lines that a spec, its gold and its prices decide by themselves."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import date

from backend.domain.errors import InvalidSpec
from backend.domain.evaluation.classification import PPM, interval_ppm
from backend.domain.evaluation.gate_floors import required_ppm
from backend.domain.money.pricing import TeacherPrice
from backend.domain.money.teacher_prices import is_free, price_json, price_sentence, price_warnings, unit_warnings
from backend.domain.money.vendor_prices import PriceTable, host_of
from backend.domain.number_words import percent, usd, usd_exact
from backend.domain.planning.estimates import Estimate, check_budget
from backend.domain.planning.gate_reach import check_reachable
from backend.domain.planning.preflight.lines import (
    Check,
    PreflightLine,
    failed_line,
    lines_of,
    passed_line,
    warning_line,
)
from backend.domain.spec.defaults import judged_by, label_names, reward_of, rewarded_by
from backend.domain.spec.gold import GoldSplit, more_heldout
from backend.domain.spec.inputs import Example
from backend.domain.spec.models import Spec


def gold_line(spec: Spec, gold: GoldSplit[Example]) -> PreflightLine:
    n_heldout, least = len(gold.heldout), spec.gate.min_heldout
    text = f"{n_heldout} gold examples are held out{', as the spec names them' if gold.is_named else ''}"
    left_out = f" {_left_out(gold.n_left_out)}" if gold.n_left_out else ""
    if n_heldout >= least:
        return passed_line(Check.GOLD, f"{text}; the gate needs {least}.{left_out}")
    return failed_line(
        Check.GOLD,
        f"{text} and the gate needs {least}.{left_out}",
        code="too_few_heldout",
        what_to_do=f"{_upper(more_heldout([*gold.train, *gold.heldout]))}.",
    )


def _left_out(n: int) -> str:
    """
    >>> _left_out(1)
    '1 other shares a text or a group with them, and does not train.'
    """
    does = "other shares" if n == 1 else "others share"
    return f"{n:,} {does} a text or a group with them, and {'does' if n == 1 else 'do'} not train."


def gate_lines(spec: Spec, *, heldout: Counter[str]) -> list[PreflightLine]:
    """Tell whether a model without a mistake would pass: its K-score with the smallest adapter, the lower bound of its
    accuracy, and of a label task each label's recall. `heldout` counts the held-out examples by their answer."""
    try:
        check_reachable(spec)
    except InvalidSpec as refused:
        return lines_of(Check.GATE, refused)
    failures = [*_bound_failures(spec, heldout.total()), *_label_failures(spec, heldout)]
    if failures:
        return failures
    n, required = heldout.total(), required_ppm(spec.gate.accuracy_lower)
    bound = percent(_best_bound(n, spec.gate.confidence))
    text = f"a model without a mistake has a lower bound of {bound} on {n} held-out examples"
    return [passed_line(Check.GATE, f"The gate can be passed: {text}, and it asks for {percent(required)}.")]


def _bound_failures(spec: Spec, n_heldout: int) -> Iterator[PreflightLine]:
    required, confidence = required_ppm(spec.gate.accuracy_lower), spec.gate.confidence
    bound = _best_bound(n_heldout, confidence)
    if bound >= required:
        return
    enough = _heldout_for(required, confidence)
    more = "" if enough is None else f"Hold out {enough} examples or more, or lower "
    yield failed_line(
        Check.GATE,
        f"Not even a model without a mistake could pass the gate: on {n_heldout} held-out examples the lower bound "
        f"of its accuracy is {percent(bound)}, and gate.accuracy_lower asks for {percent(required)}.",
        code="gate_unreachable",
        what_to_do=f"{more or 'Lower '}gate.accuracy_lower.",
    )


def _best_bound(n_heldout: int, confidence: float) -> int:
    return interval_ppm(n_heldout, n_heldout, confidence)[0] if n_heldout else 0


def _label_failures(spec: Spec, heldout: Counter[str]) -> Iterator[PreflightLine]:
    """The failures of a label of which nothing is held out, which the gate counts as a recall of 0, and of gold of one
    label alone, beside which no constant answer can be beaten."""
    names = label_names(spec)
    missing = [name for name in names if not heldout[name]]
    required = required_ppm(spec.gate.worst_class_recall)
    if missing and required:
        which, more = _quote(missing), "Add another example of" if len(missing) == 1 else "Add more examples of"
        yield failed_line(
            Check.GATE,
            f"No model could pass the gate: no gold example of {which} is held out, which counts as a recall of 0, and "
            f"gate.worst_class_recall asks for {percent(required)}.",
            code="no_heldout_for_label",
            what_to_do=f"{more} {which}, with a text and a group of its own, raise examples.holdout, or set "
            "gate.worst_class_recall to 0.",
        )
    elif missing and len(missing) == len(names) - 1 and spec.gate.beat_majority:
        (only,) = set(names) - set(missing)
        yield failed_line(
            Check.GATE,
            f"No model could pass the gate: all gold that is held out has the label {only!r}, so that always answering "
            "it is right too, and gate.beat_majority asks for more.",
            code="no_heldout_for_label",
            what_to_do="Add examples of the other labels, each with a text and a group of its own, raise "
            "examples.holdout, or set gate.beat_majority to false.",
        )


def _quote(names: list[str]) -> str:
    """
    >>> _quote(["a", "b"]), _quote(list("abcdefg"))
    ("'a', 'b'", "'a', 'b', 'c', 'd', 'e' and 2 more")
    """
    shown = ", ".join(repr(name) for name in names[:5])
    return shown + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _heldout_for(required: int, confidence: float) -> int | None:
    """The least number of held-out examples with which a model without a mistake reaches the bound; None: no number
    does.

    >>> _heldout_for(900_000, 0.95)
    35
    """
    if required >= PPM:
        return None
    low, high = 1, 1
    while interval_ppm(high, high, confidence)[0] < required:
        low, high = high, 2 * high
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if interval_ppm(middle, middle, confidence)[0] >= required else (middle + 1, high)
    return high


def price_lines(spec: Spec, estimate: Estimate, *, today: date, tables: tuple[PriceTable, ...]) -> list[PreflightLine]:
    """The price of each model: known, doubtful (old, past its vendor's last day), or zero."""
    prices = estimate.teacher
    own = [price for price in (prices.main, prices.fallback) if price is not None]
    lines = [line for price in own for line in _price(spec, price, today, tables)]
    if prices.reward is not None and prices.reward not in own:
        place = next(i for i, verifier in enumerate(spec.verifiers) if verifier is reward_of(spec))
        for line in _price(rewarded_by(spec), prices.reward, today, tables):
            todo = line.what_to_do.replace("teacher.price", f"verifiers[{place}].price")
            lines.append(replace(line, what_to_do=todo))
    if prices.judge is not None and prices.judge not in own:
        for line in _price(judged_by(spec), prices.judge, today, tables):
            todo = line.what_to_do.replace("teacher.price", "draft_cache.judge.price")
            lines.append(replace(line, what_to_do=todo))
    return lines


def _price(spec: Spec, price: TeacherPrice, today: date, tables: tuple[PriceTable, ...]) -> Iterator[PreflightLine]:
    doubts = [_doubt(text, "old_price") for text in price_warnings(price, today)]
    doubts += [_doubt(text, "tiny_price") for text in unit_warnings(price)]
    yield from doubts
    if spec.teacher.provider != "replay" and price.listing.origin == "spec" and is_free(price):
        yield _zero(spec, price, tables)
    elif not doubts:
        yield passed_line(Check.PRICE, f"{price_sentence(price_json(price))}.")


def _doubt(text: str, code: str) -> PreflightLine:
    what, _, todo = text.rpartition(": ")
    return warning_line(Check.PRICE, f"{_upper(what)}.", code=code, what_to_do=f"{_upper(todo)}.")


def _zero(spec: Spec, price: TeacherPrice, tables: tuple[PriceTable, ...]) -> PreflightLine:
    host = host_of(spec.teacher.base_url)
    rows = [row for table in tables if (row := table.find(host, price.model)) is not None]
    known = [row for row in rows if row.input_usd_per_mtok or row.output_usd_per_mtok]
    listed = ""
    if known:
        row = known[0]
        listed = (
            f", and the price table has ${row.input_usd_per_mtok:f} and ${row.output_usd_per_mtok:f} a million tokens "
            f"for it ({row.source})"
        )
    return warning_line(
        Check.PRICE,
        f"{price.model[:80]} is free, as the spec declares{listed}: its calls are booked at 0, and no budget stops "
        "them.",
        code="zero_price",
        what_to_do="Declare teacher.price as your vendor bills it; leave it at 0 for a server of your own.",
    )


def budget_line(estimate: Estimate, budget_microusd: int) -> list[PreflightLine]:
    total = estimate.total
    try:
        check_budget(estimate, budget_microusd)
    except InvalidSpec as refused:
        return lines_of(Check.BUDGET, refused)
    has = f"The budget is {usd(budget_microusd)}"
    if budget_microusd >= total.high:
        return [passed_line(Check.BUDGET, f"{has}; the compile costs {usd(total.high)} at most.")]
    text = f"{has}, and the compile is expected to cost {usd(total.expected)} and may cost {usd(total.high)}"
    if budget_microusd >= total.expected:
        return [passed_line(Check.BUDGET, f"{text}; it stops before the next call when the budget is used up.")]
    return [
        warning_line(
            Check.BUDGET,
            f"{text}: it is likely to stop before its end.",
            code="budget_below_expected",
            what_to_do=f"Raise budget.usd to {usd_exact(total.expected)} or more, or lower sampling.n_candidates.",
        )
    ]


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]
