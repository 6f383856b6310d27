"""The options of a selection, from the query string or beside the rows of a JSON body."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rest_framework import serializers as s

from backend.domain.errors import InvalidInput, Problem
from backend.domain.selection.linkage.criteria import Linkage
from backend.domain.selection.options import DEFAULT_LAMBDA, MAX_OVERCLUSTER, Method, Options, Penalty, checked_options
from backend.rest.strict import StrictSerializer

DEFAULT_SHARE = 3  # one in three
MAX_K = 1_000_000
MAX_LAMBDA = 1e6
MAX_SEED = 2**53 - 1


class Number(s.FloatField):
    """A finite number: NaN passes every comparison that DRF makes, and true is no number."""

    def to_internal_value(self, data: Any) -> float:
        value = super().to_internal_value(data)
        if isinstance(data, bool) or not math.isfinite(value):
            self.fail("invalid")
        return value


class OptionsRequest(StrictSerializer):
    k = s.IntegerField(required=False, min_value=0, max_value=MAX_K, help_text="How many to keep; of fewer rows, all.")
    k_share = Number(
        required=False,
        min_value=0,
        max_value=1,
        help_text="Instead of `k`: the share to keep, rounded up. Default 1/3.",
    )
    method = s.ChoiceField([m.value for m in Method], default=Method.AUTO.value)
    linkage = s.ChoiceField([m.value for m in Linkage], default=Linkage.AVERAGE.value, help_text="Of `two_step`.")
    score_floor = Number(
        required=False,
        allow_null=True,
        default=None,
        help_text="Share of the worst scores that is dropped first, 0 to less than 1; null is the method's own.",
    )
    diversity_lambda = Number(
        default=DEFAULT_LAMBDA, min_value=0, max_value=MAX_LAMBDA, help_text="0 is the best scores alone."
    )
    penalty = s.ChoiceField([m.value for m in Penalty], default=Penalty.NEAREST.value, help_text="Of `diverse`.")
    min_distance = Number(
        default=0.0, min_value=0, max_value=2, help_text="Cosine distance that two picks have at least."
    )
    overcluster = Number(
        default=1.0, min_value=1, max_value=MAX_OVERCLUSTER, help_text="Of `two_step`: clusters per pick."
    )
    stratify = s.BooleanField(default=True, help_text="With labels: share K out over them.")
    is_traffic = s.BooleanField(
        default=False, help_text="The rows are what people sent: `auto` keeps those that represent them."
    )
    seed = s.IntegerField(default=0, min_value=0, max_value=MAX_SEED, help_text="Of `random`.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """Checked options; K is known once the rows are counted. `given` is every other option as it stands."""

    k: int | None
    k_share: float | None
    others: Mapping[str, Any]

    def options_for(self, n: int) -> tuple[Options, bool]:
        """The domain's options and `stratify`. Raises InvalidInput."""
        rest = {name: value for name, value in self.others.items() if name != "stratify"}
        return checked_options(k=self._k_of(n), **rest), bool(self.others["stratify"])

    def _k_of(self, n: int) -> int:
        if self.k is not None:
            return self.k
        if self.k_share is not None:
            return math.ceil(round(n * self.k_share, 6))  # 0.07 * 100 is 7.000000000000001
        return -(-n // DEFAULT_SHARE)


def read_options(data: Mapping[str, Any]) -> Wish:
    """Raises ValidationError and InvalidInput, before any row is read."""
    form = OptionsRequest(data=data)
    form.is_valid(raise_exception=True)
    values = dict(form.validated_data)
    wish = Wish(k=values.pop("k", None), k_share=values.pop("k_share", None), others=values)
    if wish.k is not None and wish.k_share is not None:
        message = "Give either `k` or `k_share`, not both."
        raise InvalidInput(message, problems=(Problem(pointer="/k_share", message=message),))
    wish.options_for(1)
    return wish
