"""The number of inputs of a label task that are labelled before a label is known, and in all."""

from backend.domain.labeling.purchases import START_LEAST, START_PER_LABEL, round_size
from backend.domain.spec.defaults import buys_in_rounds, default_k_select, label_names
from backend.domain.spec.models import Spec
from backend.domain.spec.outputs import LabelOutput

FIXED_START_PERCENT = 30  # of a K that is fixed: not measured against other shares


def picks_in_rounds(spec: Spec) -> bool:
    """Say whether of captures a start is labelled first, and the labels say which come next."""
    return isinstance(spec.output, LabelOutput) and spec.sampling.method in ("auto", "representative")


def writes_more(spec: Spec) -> bool:
    """Say whether the plan may have more candidates written once their labels are known: for slices that the teacher
    fills, live, where the spec names no K."""
    is_filled = bool(spec.slices) or spec.captures is None
    is_open = spec.sampling.k_select is None and spec.teacher.mode != "batch"
    return spec.plan.more_candidates and buys_in_rounds(spec) and is_filled and is_open


def k_of_captures(spec: Spec, n: int) -> int:
    """The number of `n` captures that are labelled: what the spec names, all where `plan: auto` decides how many of
    them, else a third."""
    if spec.sampling.method == "all":
        return n
    k = spec.sampling.k_select
    if k is None:
        return n if buys_in_rounds(spec) and picks_in_rounds(spec) else default_k_select(n)
    return min(n, k)


def first_captures(spec: Spec, n: int) -> int:
    """The number of `n` captures that are labelled before a label is known."""
    k, n_labels = k_of_captures(spec, n), len(label_names(spec))
    if not picks_in_rounds(spec):
        return k
    if buys_in_rounds(spec):
        return min(k, round_size(n_labels=n_labels, n_open=n, n_labelled=0))
    return min(k, max(-(-k * FIXED_START_PERCENT // 100), START_PER_LABEL * n_labels, START_LEAST))
