"""The line about labels that get no share of the training pairs, because every slice has another label: balancing would
leave their gold out after the teacher was paid."""

from collections.abc import Sequence

from backend.domain.planning.preflight.lines import Check, PreflightLine, warning_line
from backend.domain.spec.defaults import label_names
from backend.domain.spec.inputs import Example
from backend.domain.spec.models import Spec
from backend.domain.spec.outputs import LabelOutput


def label_lines(spec: Spec, *, train: Sequence[Example]) -> list[PreflightLine]:
    """A warning where declared slices leave a label without a share; `train` is the gold that is not held out."""
    names = _without_share(spec)
    if not names:
        return []
    which = ", ".join(repr(name) for name in names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    n_gold = sum(example.output in names for example in train)
    gold = (
        f"{n_gold} gold examples that could train have it, and balancing may leave most of them out"
        if n_gold
        else "no gold example that could train has it either, and without a pair of each label the compile ends, paid"
    )
    return [
        warning_line(
            Check.GOLD,
            f"Every slice has a label and none has {which}, which gets no share of the training pairs: {gold}.",
            code="label_without_slice",
            what_to_do="Add a slice for it, declare output.labels[].share for every label, or take the label out.",
        )
    ]


def _without_share(spec: Spec) -> list[str]:
    """The labels without a share; shares that labels declare themselves go before those of their slices."""
    if not isinstance(spec.output, LabelOutput) or any(label.share is not None for label in spec.output.labels):
        return []
    named = {part.label for part in spec.slices}
    return [] if not named or None in named else [name for name in label_names(spec) if name not in named]
