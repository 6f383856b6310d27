"""Labels that no slice has, before anything is paid."""

from typing import Any

import pytest

from backend.domain.planning.preflight.label_lines import label_lines
from backend.domain.planning.preflight.lines import Check, LineStatus
from backend.domain.spec.inputs import Example
from backend.domain.spec.parsing import Spec, parse_spec
from tests.backend.domain.spec.test_parsing import document

GOLD = [Example(input=f"text {i}", output="other") for i in range(20)]
REFUND = {"name": "money", "share": 1.0, "label": "refund"}


def spec_of(*slices: dict[str, Any], **changes: Any) -> Spec:
    return parse_spec(document(slices=list(slices), **changes))


def test_gold_of_a_label_that_no_slice_has_is_counted_and_warned_of() -> None:
    (line,) = label_lines(spec_of(REFUND), train=GOLD)
    assert (line.check, line.status, line.code) == (Check.GOLD, LineStatus.WARNING, "label_without_slice")
    assert "none has 'other'" in line.sentence
    assert "20 gold examples" in line.sentence
    (bare,) = label_lines(spec_of(REFUND), train=[])
    assert "the compile ends" in bare.sentence


@pytest.mark.parametrize(
    ("slices", "shares"),
    [
        ([], [None, None]),
        ([REFUND], [0.5, 0.5]),
        ([REFUND | {"share": 0.5}, {"name": "rest", "share": 0.5}], [None, None]),
        ([REFUND | {"share": 0.5}, {"name": "rest", "share": 0.5, "label": "other"}], [None, None]),
    ],
)
def test_a_label_that_has_a_share_or_whose_shares_nobody_declares_is_no_line(slices, shares) -> None:
    labels = [{"name": name, "share": share} for name, share in zip(("refund", "other"), shares, strict=True)]
    assert label_lines(spec_of(*slices, output={"type": "label", "labels": labels}), train=GOLD) == []
