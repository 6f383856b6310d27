"""The choice of the leaves that elements of a list share: those of which that brings back more values of the pairs than
it adds wrong ones."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from backend.domain.answers.json_values import fields_of
from backend.domain.extraction.alignment import Alignment
from backend.domain.extraction.assembling import Assembler
from backend.domain.extraction.occurrences import Document
from backend.domain.extraction.plan import ExtractionPlan, Sharing, Way

LEAST_GAIN = 3  # values that sharing must bring back

Aligned = Sequence[tuple[Document, Any, Alignment]]


def with_sharing(schema: Mapping[str, Any], plan: ExtractionPlan, aligned: Aligned) -> ExtractionPlan:
    """The plan, in which each leaf of a list is shared in the way that does best; the same where none does better than
    no sharing."""
    several = [one for one in aligned if sum(span.opens for span in one[2].spans) > 1]
    for number, rule in enumerate(plan.rules):
        if rule.way is not Way.COPIED or not rule.list_path or not any(number in one[2].missing for one in several):
            continue
        least = _balance(schema, plan, number, several) + LEAST_GAIN
        for way in Sharing:
            shared = replace(rule, shared=way)
            tried = replace(plan, rules=(*plan.rules[:number], shared, *plan.rules[number + 1 :]))
            balance = _balance(schema, tried, number, several)
            if balance >= least:
                plan, least = tried, balance + 1
    return plan


def _balance(schema: Mapping[str, Any], plan: ExtractionPlan, number: int, aligned: Aligned) -> int:
    """The values of a leaf that come out right, less those that the answers do not have."""
    assembler, path, n = Assembler(schema, plan), plan.rules[number].path, 0
    for document, answer, one in aligned:
        made, _ = assembler.answer(document.text, one.spans, one.classes)
        ours, wanted = (fields_of(each).get(path, Counter()) for each in (made, answer))
        n += (ours & wanted).total() - (ours - wanted).total()
    return n
