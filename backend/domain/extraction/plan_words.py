"""An extraction plan in words, for messages."""

from collections.abc import Sequence

from backend.domain.extraction.plan import NO_ANCHOR, ExtractionPlan, LeafRule, Refusal, Sharing

MOST_NAMED = 5
_SHARED = {
    Sharing.EITHER: "where it is missing that of the element before, or else of the one after",
    Sharing.AFTER: "where it is missing that of the next element",
    Sharing.BEFORE: "where it is missing that of the element before",
    Sharing.NEAREST: "where it is missing that of the nearest element",
    Sharing.ONLY: "the same in all elements where the text has one alone",
}


def shared_words(rule: LeafRule) -> str:
    """Say what elements of a list without a value of their own have; "" where nothing."""
    return "" if rule.shared is None else _SHARED[rule.shared]


def names(refusals: Sequence[Refusal]) -> str:
    """The paths of some refused leaves."""
    shown = [one.path or "the answer" for one in refusals[:MOST_NAMED]]
    return ", ".join(shown) + (f" and {len(refusals) - MOST_NAMED} more" if len(refusals) > MOST_NAMED else "")


def refusal_message(plan: ExtractionPlan) -> str:
    """The reason why a task is no extraction, with the leaves and some of their values, and what to do."""
    lost = plan.refusals or tuple(
        Refusal(path=rule.path, why="", n=rule.n, n_wrong=rule.n - rule.n_right)
        for rule in sorted(plan.rules, key=lambda rule: rule.n_right - rule.n)[:3]
        if rule.n_right < rule.n
    )
    if plan.sentences is not None and lost and not lost[0].path:
        return _no_forms(lost[0])
    examples = [example for one in lost[:3] for example in one.examples[:1]]
    shown = f" (such as {', '.join(examples)})" if examples else ""
    is_adrift = any(one.why == NO_ANCHOR for one in lost)
    reason = " A list of objects needs a field that is copied: it shows where an element begins." if is_adrift else ""
    return (
        f"A span student copies values from the input or chooses them from a closed set, and brings back "
        f"{plan.n_right:,} of the {plan.n_values:,} values in the pairs. It cannot answer {names(lost) or 'the task'}"
        f"{shown}.{reason}"
    )


def _no_forms(lost: Refusal) -> str:
    return (
        f"{formless_words(lost, 'texts in the pairs')} Have the teacher keep to fewer forms, by saying them in the "
        "task, or leave train.kind out for a causal base."
    )


def formless_words(lost: Refusal, texts: str) -> str:
    """Say how many of the `texts` have no form, with some of them."""
    shown = "; ".join(lost.examples)
    return (
        f"A span student answers with texts of fixed forms, and {lost.n_wrong:,} of the {lost.n:,} {texts} have no "
        f"form that another one has (such as {shown})."
    )
