"""Closed sets inside lists of objects, and values that elements share."""

from typing import Any

from backend.domain.answers.json_values import is_exact
from backend.domain.extraction.alignment import Aligner
from backend.domain.extraction.assembling import Assembler
from backend.domain.extraction.learning import is_extraction, learn_plan
from backend.domain.extraction.occurrences import Document
from backend.domain.extraction.plan import ExtractionPlan, LeafRule, Way

LINE: dict[str, Any] = {
    "type": "object",
    "properties": {
        "item": {"type": "string"},
        "unit": {"enum": ["piece", "box"]},
        "gift": {"type": "boolean"},
    },
    "required": ["item"],
}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"lines": {"type": "array", "items": LINE}},
    "required": ["lines"],
}
ITEMS = ("cups", "pens", "hats", "lamps", "rugs", "chairs", "bowls", "maps")
Pair = tuple[str, dict[str, Any]]


def unit_pairs(n: int) -> list[Pair]:
    """Lines whose unit and wish are said in other words than the schema's."""
    pairs = []
    for i in range(n):
        lines, words = [], []
        for k in range(1 + i % 3):
            item, is_box, is_gift = ITEMS[(i + 3 * k) % 8], (i + k) % 2 == 0, (i + k) % 3 == 0
            unit = {"unit": "box" if is_box else "piece"} if (i + k) % 5 else {}
            words.append(("a crate of " if is_box else "single ") * bool(unit) + item + ", wrapped up" * is_gift)
            lines.append({"item": item, **unit, "gift": is_gift})
        pairs.append(("send " + " and ".join(words), {"lines": lines}))
    return pairs


def rules_of(plan: ExtractionPlan) -> dict[str, LeafRule]:
    return {rule.path: rule for rule in plan.rules}


def put_together(schema: dict[str, Any], plan: ExtractionPlan, pair: Pair) -> Any:
    text, answer = pair
    assembler = Assembler(schema, plan)
    aligner = Aligner(plan.rules, assembler.leaves)
    aligner.learn([(Document(text), answer)])
    aligned = aligner.align(Document(text), answer)
    assert not aligned.missing
    made, _ = assembler.answer(text, aligned.spans, aligned.classes)
    return made


def test_a_closed_set_in_a_list_has_a_class_for_each_element() -> None:
    plan = learn_plan(SCHEMA, unit_pairs(60))
    assert is_extraction(plan)
    assert plan.share_ppm == 1_000_000
    rules = rules_of(plan)
    assert (rules["/lines/*/unit"].way, rules["/lines/*/unit"].choices) == (Way.EACH, (None, "piece", "box"))
    assert (rules["/lines/*/gift"].way, rules["/lines/*/gift"].choices) == (Way.EACH, (False, True))
    assert ExtractionPlan.from_json(plan.to_json()) == plan
    for pair in unit_pairs(9):
        assert is_exact(put_together(SCHEMA, plan, pair), pair[1])


def test_a_closed_set_whose_values_stand_in_their_elements_is_copied() -> None:
    pairs = [(text.replace("single", "piece of").replace("crate", "box"), answer) for text, answer in unit_pairs(60)]
    assert rules_of(learn_plan(SCHEMA, pairs))["/lines/*/unit"].way is Way.COPIED


def test_a_list_of_nothing_but_classes_is_no_extraction_and_says_why() -> None:
    properties = {name: LINE["properties"][name] for name in ("unit", "gift")}
    item = {"type": "object", "properties": properties, "required": ["gift"]}
    schema = {"type": "object", "properties": {"lines": {"type": "array", "items": item}}, "required": ["lines"]}
    pairs = [
        (text, {"lines": [{name: line[name] for name in properties if name in line} for line in answer["lines"]]})
        for text, answer in unit_pairs(60)
    ]
    plan = learn_plan(schema, pairs)
    assert not is_extraction(plan)
    assert {one.path for one in plan.refusals} == {"/lines/*/unit", "/lines/*/gift"}
    assert all("where the element is" in one.why for one in plan.refusals)


ORDER: dict[str, Any] = {
    "type": "object",
    "properties": {"number": {"type": ["string", "null"]}, "item": {"type": "string"}},
    "required": ["number", "item"],
}
ORDERS: dict[str, Any] = {
    "type": "object",
    "properties": {"orders": {"type": "array", "items": ORDER}},
    "required": ["orders"],
}


def order_pairs(n: int, *, is_shared: bool) -> list[Pair]:
    """Two products of one order; where the number is not shared, the second is of an order that nobody names."""
    pairs = []
    for i in range(n):
        number, one, other = f"A{1000 + 7 * i}", ITEMS[i % 8], ITEMS[(i + 3) % 8]
        is_after = is_shared and i % 2
        text = f"the {one} and the {other} of order {number}" if is_after else f"order {number}: the {one} and {other}"
        second = number if is_shared else None
        answer = {"orders": [{"number": number, "item": one}, {"number": second, "item": other}]}
        pairs.append((text, answer))
    return pairs


def test_a_value_that_stands_once_and_holds_for_several_elements_is_shared() -> None:
    plan = learn_plan(ORDERS, order_pairs(40, is_shared=True))
    assert rules_of(plan)["/orders/*/number"].is_shared
    assert not rules_of(plan)["/orders/*/item"].is_shared
    assert plan.share_ppm == 1_000_000
    assert ExtractionPlan.from_json(plan.to_json()) == plan
    for pair in order_pairs(4, is_shared=True):
        assert is_exact(put_together(ORDERS, plan, pair), pair[1])


def test_nothing_is_shared_where_that_would_break_more_than_it_brings_back() -> None:
    plan = learn_plan(ORDERS, order_pairs(40, is_shared=False))
    assert not rules_of(plan)["/orders/*/number"].is_shared
    assert "is_shared" not in str(plan.to_json())
    assert plan.share_ppm == 1_000_000
