"""The answers of a verified artifact: its rules first, its model loaded once and only where a rule does not answer."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from backend.domain.artifact.kolm_verify import Kolm
from gpu_runners.cli.artifacts.loading import model_of, rules_of

Answer = dict[str, Any]


def answering(kolm: Kolm, *, n_texts: int | None = None) -> Callable[[Sequence[str]], list[Answer]]:
    """Return a function that answers texts, in order; `n_texts` is how many there will be, None: as many as come. It
    raises Refused, and OurError for a text longer than the base's context."""
    from gpu_runners.artifacts.abstaining import abstain_ppm_of, with_doubts
    from gpu_runners.artifacts.rules_first import predict_with_rules

    is_label = kolm.manifest["task_type"] == "label"
    rules, abstain_ppm = rules_of(kolm), abstain_ppm_of(kolm.members) if is_label else None

    @cache
    def model() -> Any:
        return model_of(kolm, n_texts=n_texts)

    def answer(texts: Sequence[str]) -> list[Answer]:
        rows = predict_with_rules(
            rules, texts, is_label=is_label, model=lambda left: [dict(row) for row in model().predict(left)]
        )
        return with_doubts(rows, abstain_ppm) if is_label else rows

    return answer
