"""Closed sets inside lists of objects, and values that elements share."""

import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.domain.answers.json_schemas import validator
from backend.domain.answers.json_values import is_exact
from backend.domain.extraction.alignment import Aligner
from backend.domain.extraction.assembling import Assembler
from backend.domain.extraction.learning import is_extraction, learn_plan
from backend.domain.extraction.occurrences import Document
from backend.domain.extraction.plan import ExtractionPlan, LeafRule, Sharing, Way
from backend.domain.extraction.plan_words import refusal_message, shared_words
from backend.domain.extraction.reads import SpanRead
from backend.domain.extraction.sharing import with_shared

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
    assert "A list of objects needs a field that is copied" in refusal_message(plan)


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
    assert rules_of(plan)["/orders/*/number"].shared is Sharing.EITHER
    assert rules_of(plan)["/orders/*/item"].shared is None
    assert plan.share_ppm == 1_000_000
    assert ExtractionPlan.from_json(plan.to_json()) == plan
    for pair in order_pairs(4, is_shared=True):
        assert is_exact(put_together(ORDERS, plan, pair), pair[1])


def test_nothing_is_shared_where_that_would_break_more_than_it_brings_back() -> None:
    plan = learn_plan(ORDERS, order_pairs(40, is_shared=False))
    assert rules_of(plan)["/orders/*/number"].shared is None
    assert "shared" not in str(plan.to_json())
    assert plan.share_ppm == 1_000_000


SIZES = {"S": "small", "M": "medium", "L": "large"}


def list_of(**fields: Any) -> dict[str, Any]:
    """A list of objects; a field whose schema has `"optional": True` may be left out."""
    needed = [name for name, field in fields.items() if not field.pop("optional", False)]
    return {"type": "array", "items": {"type": "object", "properties": fields, "required": needed}}


def lines_schema(**fields: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"lines": list_of(**fields)}, "required": ["lines"]}


def test_a_letter_that_stands_in_a_word_is_no_place_of_a_size() -> None:
    """S is a letter of "please" and of "small", so a place by the letters would be found in every text."""
    rng = random.Random(1)
    pairs = []
    for _ in range(60):
        lines = [{"item": item, "size": rng.choice("SML")} for item in rng.sample(ITEMS, 2)]
        words = " and ".join(f"{SIZES[line['size']]} {line['item']}" for line in lines)
        pairs.append((f"please send {words}", {"lines": lines}))
    schema = lines_schema(item={"type": "string"}, size={"enum": list(SIZES)})
    plan = learn_plan(schema, pairs)
    assert rules_of(plan)["/lines/*/size"].way is Way.EACH
    assert plan.share_ppm == 1_000_000
    only = [(text, {"lines": [{"size": line["size"]} for line in answer["lines"]]}) for text, answer in pairs]
    assert not is_extraction(learn_plan(lines_schema(size={"enum": list(SIZES)}), only))
    spelt = [(f"{line['size']} and L", {"lines": [line, {"size": "L"}]}) for _, a in only for line in a["lines"][:1]]
    plan = learn_plan(lines_schema(size={"enum": list(SIZES)}), spelt)
    assert (rules_of(plan)["/lines/*/size"].way, plan.share_ppm) == (Way.COPIED, 1_000_000)


def test_an_answer_may_be_a_list_of_objects_itself() -> None:
    schema = LINE["properties"]
    root = {"type": "array", "items": {"type": "object", "properties": schema, "required": ["item", "gift"]}}
    pairs = [(text, answer["lines"]) for text, answer in unit_pairs(60)]
    plan = learn_plan(root, pairs)
    assert plan.share_ppm == 1_000_000
    assert rules_of(plan)["/*/gift"].way is Way.EACH
    assert rules_of(plan)["/*/gift"].list_path == "/*"
    for text, lines in pairs[:9]:
        assert is_exact(put_together(root, plan, (text, lines)), lines)


Line = dict[str, Any]


def of_noun(rng: random.Random, lines: list[Line]) -> str:
    """Two colours of a noun that stands behind them, twice."""
    first, second = rng.sample(ITEMS, 2)
    for line, item in zip(lines, (first, first, second, second), strict=True):
        line["item"] = item
    said = [f"{line['count']} {line['colour']}" for line in lines]
    return f"{said[0]} and {said[1]} {first}, {said[2]} and {said[3]} {second}"


def of_heading(rng: random.Random, lines: list[Line]) -> str:
    """A noun before its colours; the first line has none, and is no line of the noun that comes later."""
    del lines[0]["colour"]
    item = rng.choice(ITEMS)
    for line in lines[1:]:
        line["item"] = item
    said = [f"{line['count']} {line['colour']}" for line in lines[1:]]
    return f"{lines[0]['count']}, and {item}: " + ", ".join(said)


def of_day(rng: random.Random, lines: list[Line]) -> str:
    """One day for all, or one for each, where a line without a day has none."""
    for line in lines:
        line["item"] = rng.choice(ITEMS)
    said = [f"{line['count']} {line['colour']} {line['item']}" for line in lines]
    if rng.random() < 0.5:
        for line in lines:
            line["day"] = "Monday"
        return ", ".join(said) + ", all on Monday"
    lines[0]["day"], lines[2]["day"] = "Friday", "Sunday"
    said[0], said[2] = f"{said[0]} on Friday", f"{said[2]} on Sunday"
    return ", ".join(said)


@pytest.mark.parametrize(
    ("say", "leaf", "way"),
    [
        (of_noun, "item", Sharing.AFTER),
        (of_heading, "item", Sharing.BEFORE),
        (of_day, "day", Sharing.ONLY),
    ],
)
def test_the_way_of_sharing_is_the_one_that_brings_the_pairs_back(
    say: Callable[[random.Random, list[Line]], str], leaf: str, way: Sharing
) -> None:
    rng = random.Random(3)
    text = {"type": "string"}
    schema = lines_schema(
        count={"type": "integer"},
        colour=text | {"optional": True},
        item=text | {"optional": True},
        day=text | {"optional": True},
    )
    pairs: list[Pair] = []
    for _ in range(40):
        colours = rng.sample(("red", "blue", "green", "black", "white", "grey"), 4)
        lines = [{"count": rng.randint(2, 90), "colour": colour} for colour in colours]
        pairs.append((say(rng, lines), {"lines": lines}))
    plan = learn_plan(schema, pairs)
    assert {rule.path: rule.shared for rule in plan.rules if rule.shared} == {f"/lines/*/{leaf}": way}
    assert plan.share_ppm == 1_000_000
    assert ExtractionPlan.from_json(plan.to_json()) == plan
    for pair in pairs:
        assert is_exact(put_together(schema, plan, pair), pair[1])
    assert shared_words(rules_of(plan)[f"/lines/*/{leaf}"])


def test_the_nearest_element_is_the_one_with_the_fewest_characters_between() -> None:
    extents = [(0, 12), (14, 18), (40, 50)]
    assert with_shared(Sharing.NEAREST, ["mug", "", "lamp"], extents)[1] == "mug"
    assert with_shared(Sharing.NEAREST, ["mug", "", "lamp"], [(0, 12), (30, 38), (40, 50)])[1] == "lamp"


@given(st.sampled_from(Sharing), st.lists(st.sampled_from(["", "a", "b"]), max_size=6))
def test_sharing_changes_no_value_and_invents_none(way: Sharing, reads: list[str]) -> None:
    out = with_shared(way, reads, [(10 * nth, 10 * nth + 5) for nth in range(len(reads))])
    assert all(not own or own == made for own, made in zip(reads, out, strict=True))
    assert set(out) <= {*reads, ""}


@pytest.mark.parametrize("changed", [{"shared": "sideways"}, {"way": "every"}, {"choices": None}, {"colour": 1}])
def test_a_plan_of_no_known_form_is_refused(changed: dict[str, Any]) -> None:
    plan = learn_plan(ORDERS, order_pairs(40, is_shared=True)).to_json()
    plan["rules"][0] |= changed
    with pytest.raises(ValueError):
        ExtractionPlan.from_json(plan)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 3), st.booleans(), st.booleans())
def test_whatever_the_order_lines_their_plan_brings_them_back(
    seed: int, most: int, has_unit: bool, has_gift: bool
) -> None:
    rng = random.Random(seed)
    pairs: list[Pair] = []
    for nth in range(24):
        lines: list[Line] = []
        words = []
        for item in rng.sample(ITEMS, 1 + nth % most):
            count, unit, gift = rng.randint(2, 60), rng.choice(("piece", "box")), rng.random() < 0.5
            said = f"{count} {'crates of ' * (has_unit and unit == 'box')}{item}{', wrapped up' * (has_gift and gift)}"
            line: Line = {"count": count, "item": item}
            lines.append(line | ({"unit": unit} if has_unit else {}) | ({"gift": gift} if has_gift else {}))
            words.append(said)
        pairs.append((rng.choice(("send ", "we need ", "")) + " and ".join(words), {"lines": lines}))
    schema = lines_schema(count={"type": "integer"}, **{name: dict(LINE["properties"][name]) for name in ("item",)})
    items = schema["properties"]["lines"]["items"]
    items["properties"] |= {name: LINE["properties"][name] for name in ("unit", "gift")}
    plan = learn_plan(schema, pairs)
    assert plan.share_ppm == 1_000_000
    ways = {path: rule.way for path, rule in rules_of(plan).items()}
    assert (ways["/lines/*/unit"] is Way.ABSENT) is not has_unit
    assert ways["/lines/*/gift"] in ((Way.EACH, Way.CONSTANT) if has_gift else (Way.ABSENT,))
    fits = validator(schema)
    for pair in pairs:
        made = put_together(schema, plan, pair)
        assert is_exact(made, pair[1])
        assert fits(made) == []


@pytest.mark.parametrize("text", ["order A1000. I mean the cups and pens", "the cups and pens, that is of order A1000"])
def test_a_shared_value_that_was_read_as_an_element_of_its_own_is_none(text: str) -> None:
    plan = learn_plan(ORDERS, order_pairs(40, is_shared=True))
    numbers = {rule.path: number for number, rule in enumerate(plan.rules)}
    spans = [
        SpanRead(rule=numbers[f"/orders/*/{field}"], start=place, end=place + len(value), opens=True)
        for field, value in (("number", "A1000"), ("item", "cups"), ("item", "pens"))
        for place in [text.index(value)]
    ]
    answer, fields = Assembler(ORDERS, plan).answer(text, spans, ())
    assert answer == {"orders": [{"number": "A1000", "item": "cups"}, {"number": "A1000", "item": "pens"}]}
    assert {text[one.start : one.end] for one in fields if one.path.endswith("number") and one.start is not None} == {
        "A1000"
    }


def test_a_plan_that_knows_one_way_of_sharing_still_loads() -> None:
    plan = learn_plan(ORDERS, order_pairs(40, is_shared=True)).to_json()
    for rule in plan["rules"]:
        rule |= {"is_shared": True} if rule.pop("shared", None) else {}
    assert {r.path for r in ExtractionPlan.from_json(plan).rules if r.shared is Sharing.EITHER} == {"/orders/*/number"}
