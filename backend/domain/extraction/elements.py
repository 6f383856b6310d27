"""The division of what was read of a list of objects into its elements.

An element begins where a span opens it, or would fill a field twice. One that has nothing but a value that others
share is none: no pair has it, as the value stands in the elements that it holds for.
"""

from collections.abc import Sequence

from backend.domain.extraction.plan import ExtractionPlan
from backend.domain.extraction.reads import SpanRead
from backend.domain.extraction.sharing import donors

Element = list[SpanRead]


def elements_of(plan: ExtractionPlan, spans: Sequence[SpanRead]) -> dict[str, list[Element]]:
    """The spans of each list of objects by its path, divided into elements; the first of an element has its
    classes."""
    lists: dict[str, Element] = {}
    for span in sorted(spans, key=lambda span: span.start):
        if (path := plan.rules[span.rule].list_path) and not span.is_spare:
            lists.setdefault(path, []).append(span)
    return {path: _without_lone(plan, _divide(plan, own)) for path, own in lists.items()}


def extent_of(element: Sequence[SpanRead]) -> tuple[int, int]:
    """The begin of an element's first span and the end of its last."""
    return min(span.start for span in element), max(span.end for span in element)


def _divide(plan: ExtractionPlan, spans: Sequence[SpanRead]) -> list[Element]:
    elements: list[Element] = []
    for span in spans:
        is_single = plan.rules[span.rule].separator is None
        is_filled = is_single and bool(elements) and any(other.rule == span.rule for other in elements[-1])
        if not elements or span.opens or is_filled:
            elements.append([])
        elements[-1].append(span)
    return elements


def _without_lone(plan: ExtractionPlan, elements: list[Element]) -> list[Element]:
    """The elements but those that have only a value that others share: it goes to the nearest that shares it."""
    for number in sorted({span.rule for element in elements for span in element}):
        way = plan.rules[number].shared
        if way is None:
            continue
        columns = [[span for span in element if span.rule == number] for element in elements]
        sources = donors(way, columns, [extent_of(element) for element in elements])
        for lone in [nth for nth, element in enumerate(elements) if len(columns[nth]) == len(element)]:
            takers = [nth for nth, source in enumerate(sources) if source == lone]
            if takers:
                taker = min(takers, key=lambda nth: abs(nth - lone))
                elements[taker] = [*elements[taker], *elements[lone]]
                elements[lone] = []
        elements = [element for element in elements if element]
    return elements
