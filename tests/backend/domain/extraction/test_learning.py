"""What a plan learns from pairs is what brings their answers back."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.domain.answers.json_schemas import validator
from backend.domain.answers.json_values import is_exact
from backend.domain.extraction.alignment import Aligner, Alignment
from backend.domain.extraction.assembling import Assembler
from backend.domain.extraction.converters import Converter
from backend.domain.extraction.learning import is_extraction, learn_plan
from backend.domain.extraction.occurrences import Document
from backend.domain.extraction.plan import ExtractionPlan, LeafRule, Way
from backend.domain.extraction.plan_words import refusal_message

Pairs = Sequence[tuple[str, Any]]
TEXT = {"type": "string"}
CITIES = ("Rome", "Oslo", "Lima", "Cairo", "Quito", "Delhi", "Tunis", "Paris")


def schema(required: Sequence[str] = (), **fields: Any) -> dict[str, Any]:
    return {"type": "object", "properties": fields, "required": list(required)}


def rule_of(plan: ExtractionPlan, path: str) -> LeafRule:
    return next(rule for rule in plan.rules if rule.path == path)


def converters(plan: ExtractionPlan, path: str) -> list[Converter]:
    return [one.converter for one in rule_of(plan, path).conversions]


def aligned(made: dict[str, Any], plan: ExtractionPlan, pairs: Pairs) -> list[Alignment]:
    aligner = Aligner(plan.rules, Assembler(made, plan).leaves)
    documents = [(Document(text), answer) for text, answer in pairs]
    aligner.learn(documents)
    return [aligner.align(document, answer) for document, answer in documents]


def texts(alignment: Alignment, plan: ExtractionPlan, text: str) -> dict[str, list[str]]:
    """What each leaf reads of a text."""
    out: dict[str, list[str]] = {}
    for span in sorted(alignment.spans, key=lambda span: span.start):
        out.setdefault(plan.rules[span.rule].path, []).append(text[span.start : span.end])
    return out


def test_copied_values_closed_sets_constants_and_absence_are_told_apart() -> None:
    made = schema(
        ("kind", "source"),
        kind={"enum": ["buy", "sell", "hold"]},
        city=TEXT,
        source=TEXT,
        note=TEXT,
        urgent={"type": "boolean"},
    )
    pairs = [
        (
            f"{'please ' * (n % 2)}{verb} in {city}",
            {"kind": verb, "source": "mail", "urgent": n % 2 == 1} | ({"city": city} if n % 3 else {}),
        )
        for n, (verb, city) in enumerate(zip(("buy", "sell", "hold") * 8, CITIES * 3, strict=True))
    ]
    plan = learn_plan(made, pairs)
    ways = {rule.path: rule.way for rule in plan.rules}
    assert ways == {
        "/kind": Way.CLOSED,
        "/city": Way.COPIED,
        "/source": Way.CONSTANT,
        "/note": Way.ABSENT,
        "/urgent": Way.CLOSED,
    }
    assert plan.share_ppm == 1_000_000
    assert is_extraction(plan)
    assert ExtractionPlan.from_json(json.loads(json.dumps(plan.to_json()))) == plan


@pytest.mark.parametrize(
    ("values", "converter"),
    [
        ([("the code ab-12 please", "ab-12"), ("send xy-9", "xy-9")], Converter.AS_IS),
        ([("to new\n york now", "new york"), ("to los\r\nangeles", "los angeles")], Converter.ONE_LINE),
        ([("to ROME", "rome"), ("to Oslo", "oslo")], Converter.LOWER),
        ([("code ab12", "AB12"), ("code x9", "X9")], Converter.UPPER),
        ([("for jane doe", "Jane Doe"), ("for max frisch", "Max Frisch")], Converter.TITLE),
        ([("call +49 (30) 12-34", "49301234"), ("call 0 800-1", "08001")], Converter.DIGITS),
        ([("id ab-12.3", "AB123"), ("id q 7", "Q7")], Converter.CODE_UPPER),
        ([("on 3 May 2026", "2026-05-03"), ("on 14/6/2026", "2026-06-14")], Converter.DATE_DAY_FIRST),
        ([("on 5/3/2026", "2026-05-03"), ("on 6/14/2026", "2026-06-14")], Converter.DATE_MONTH_FIRST),
        ([("at 3 pm", "15:00"), ("at 9:30", "09:30")], Converter.TIME),
        ([("for $1,234.50", 1234.5), ("for 1.234,75 €", 1234.75)], Converter.NUMBER),
        ([("für 1.500 €", 1500), ("für 2.750 €", 2750)], Converter.NUMBER_COMMA),
        ([("for $12.50", 1250), ("for 3 dollars", 300)], Converter.HUNDREDTHS),
        ([("by 15 %", 0.15), ("by 8%", 0.08)], Converter.PERCENT),
        ([("two pens", 2), ("a dozen eggs", 12)], Converter.NUMBER),
    ],
)
def test_the_converter_is_the_one_that_reproduces_the_pairs(
    values: list[tuple[str, Any]], converter: Converter
) -> None:
    kind = "number" if isinstance(values[0][1], int | float) else "string"
    made = schema(("v",), v={"type": kind})
    pairs = [(text, {"v": value}) for text, value in values]
    plan = learn_plan(made, pairs)
    assert converters(plan, "/v") == [converter]
    assert plan.n_right == plan.n_values == len(values)


def test_thousands_separators_of_two_locales_are_read_in_one_task() -> None:
    made = schema(total={"type": "number"})
    pairs = [
        ("EUR 1.234.567,89", 1234567.89),
        ("USD 1,234,567.89", 1234567.89),
        ("12,5 kg", 12.5),
        ("CHF 1'250.00", 1250),
    ]
    plan = learn_plan(made, [(text, {"total": value}) for text, value in pairs])
    assert plan.n_right == 4


def test_a_date_without_a_year_has_the_year_that_the_pairs_have() -> None:
    made = schema(day={"type": "string", "format": "date"})
    pairs = [(f"come on {day} May", {"day": f"2026-05-{day:02}"}) for day in range(3, 20)]
    plan = learn_plan(made, pairs)
    assert plan.share_ppm == 1_000_000
    assert rule_of(plan, "/day").conversions[0].year == 2026
    years = [(f"on {day} May", {"day": f"{2020 + day % 5}-05-{day:02}"}) for day in range(3, 20)]
    assert not is_extraction(learn_plan(made, years))  # nothing in the text says which


def test_a_value_that_stands_twice_is_taken_where_its_like_stand() -> None:
    made = schema(source=TEXT, target=TEXT)
    pairs = [
        (f"fly from {a} to {b}", {"source": a, "target": b})
        for a, b in zip(CITIES, CITIES[1:] + CITIES[:1], strict=True)
    ]
    twice = [
        ("Rome is cold so fly from Rome to Oslo", {"source": "Rome", "target": "Oslo"}),
        ("fly from Lima to Lima", {"source": "Lima", "target": "Lima"}),
    ]
    plan = learn_plan(made, [*pairs, *twice])
    cold, same = aligned(made, plan, [*pairs, *twice])[-2:]
    assert sorted((span.start, span.end) for span in cold.spans) == [(25, 29), (33, 37)]
    assert {plan.rules[span.rule].path: span.start for span in same.spans} == {"/source": 9, "/target": 17}


def test_fields_that_overlap_are_tagged_in_layers_of_their_own() -> None:
    made = schema(name=TEXT, first=TEXT, age={"type": "integer"})
    people = ("Ann Lee", "Bob Ray", "Cy Twombly", "Di Caro", "Eve Ng")
    pairs = [
        (f"{name}, aged {n + 30}", {"name": name, "first": name.split()[0], "age": n + 30})
        for n, name in enumerate(people)
    ]
    plan = learn_plan(made, pairs)
    assert len(plan.layers) == 2
    assert sorted(i for layer in plan.layers for i in layer) == list(plan.copied)
    assert plan.share_ppm == 1_000_000


def test_unicode_that_changes_length_under_normalisation_keeps_its_offsets() -> None:
    made = schema(street=TEXT, city=TEXT)
    decomposed = "in Caf\u0065\u0301 Straße, Zu\u0308rich"
    pairs = [(decomposed, {"street": "Café Straße", "city": "Zürich"}), ("İstanbul, Ŀ", {"city": "İstanbul"})] * 6
    plan = learn_plan(made, pairs)
    assert plan.share_ppm == 1_000_000
    read = texts(aligned(made, plan, pairs)[0], plan, decomposed)
    assert read == {"/street": ["Caf\u0065\u0301 Straße"], "/city": ["Zu\u0308rich"]}
    assert texts(aligned(made, plan, pairs)[1], plan, pairs[1][0]) == {"/city": ["İstanbul"]}


def test_a_value_in_several_pieces_is_joined() -> None:
    made = schema(names=TEXT)
    pairs = [(f"{a} came with {b}", {"names": f"{a}, {b}"}) for a, b in zip(CITIES, CITIES[2:], strict=False)]
    plan = learn_plan(made, pairs)
    assert rule_of(plan, "/names").separator == ", "
    assert plan.share_ppm == 1_000_000


def test_a_list_of_scalars_and_a_list_of_choices_are_read() -> None:
    made = schema(
        cities={"type": "array", "items": TEXT}, moods={"type": "array", "items": {"enum": ["happy", "angry", "calm"]}}
    )
    pairs: list[tuple[str, Any]] = [
        (f"from {a} over {b} :)", {"cities": [a, b], "moods": ["happy"]})
        for a, b in zip(CITIES, CITIES[3:], strict=False)
    ]
    pairs += [("nowhere!!", {"cities": [], "moods": ["angry", "calm"]}), ("no", {"moods": []})]
    plan = learn_plan(made, pairs)
    assert (rule_of(plan, "/cities/*").way, rule_of(plan, "/moods/*").way) == (Way.COPIED, Way.MANY)
    assert plan.share_ppm == 1_000_000


def test_the_lines_of_an_order_are_grouped_from_their_spans() -> None:
    line = {
        "type": "object",
        "properties": {"sku": TEXT, "count": {"type": "integer"}, "colour": TEXT},
        "required": ["sku", "count"],
    }
    made = schema(("lines",), lines={"type": "array", "items": line})
    pairs = [
        ("2 pens and 3 red cups", [("pens", 2, None), ("cups", 3, "red")]),
        ("send 4 blue hats", [("hats", 4, "blue")]),
        ("2 mats, 2 rugs and 2 green pots", [("mats", 2, None), ("rugs", 2, None), ("pots", 2, "green")]),
        ("a dozen eggs", [("eggs", 12, None)]),
        ("nothing today", []),
        ("5 nuts 6 bolts", [("nuts", 5, None), ("bolts", 6, None)]),
    ]
    answers = [
        (
            text,
            {"lines": [{"sku": s, "count": c} | ({"colour": k} if k else {}) for s, c, k in lines]},
        )
        for text, lines in pairs
    ]
    plan = learn_plan(made, answers)
    assert plan.share_ppm == 1_000_000
    assembler = Assembler(made, plan)
    for (text, answer), alignment in zip(answers, aligned(made, plan, answers), strict=True):
        assert is_exact(assembler.answer(text, alignment.spans, alignment.classes)[0], answer)


def test_a_value_that_no_text_has_is_a_default_where_it_is_the_commonest() -> None:
    made = schema(("count", "item"), count={"type": "integer"}, item=TEXT)
    pairs: list[tuple[str, Any]] = [(f"send {c} hats to {c}", {"count": 1, "item": "hats"}) for c in CITIES]
    pairs += [(f"send {n} hats", {"count": n, "item": "hats"}) for n in range(2, 9)]
    plan = learn_plan(made, pairs)
    rule = rule_of(plan, "/count")
    assert (rule.way, rule.has_default, rule.default) == (Way.COPIED, True, 1)
    assert plan.share_ppm == 1_000_000


def test_an_enum_of_five_hundred_is_copied_where_its_values_stand_in_the_inputs() -> None:
    codes = [f"Part {n // 26}{chr(97 + n % 26)}" for n in range(500)]
    made = schema(("part",), part={"enum": codes})
    pairs = [(f"need one part-{code[5:].upper()} soon", {"part": code}) for code in codes[::7]]
    plan = learn_plan(made, pairs)
    assert converters(plan, "/part") == [Converter.CHOICE]
    assert plan.share_ppm == 1_000_000
    unseen = [(f"mood number {n}", {"part": code}) for n, code in enumerate(codes[:90] * 2)]
    assert rule_of(learn_plan(made, unseen), "/part").way is Way.CLOSED


def test_a_schema_of_sixty_fields_of_which_three_are_filled_is_one() -> None:
    made = schema(**{f"field_{n}": TEXT for n in range(60)})
    pairs = [
        (f"{a} {b} {c}", {"field_3": a, "field_30": b, "field_59": c})
        for a, b, c in zip(CITIES, CITIES[1:], CITIES[2:], strict=False)
    ]
    plan = learn_plan(made, pairs)
    assert sum(rule.way is Way.ABSENT for rule in plan.rules) == 57
    assert is_extraction(plan)


def test_values_that_are_not_in_the_inputs_are_refused_with_their_leaf_and_examples() -> None:
    made = schema(("city", "summary"), city=TEXT, summary=TEXT)
    pairs = [(f"we met in {city}", {"city": city, "summary": f"gathering no. {n}"}) for n, city in enumerate(CITIES)]
    plan = learn_plan(made, pairs)
    assert not is_extraction(plan)
    (refusal,) = plan.refusals
    assert (refusal.path, refusal.n, refusal.n_wrong) == ("/summary", 8, 7)  # the commonest is written everywhere
    assert refusal.examples[0] == '"gathering no. 1"'
    assert "/summary" in refusal_message(plan)
    assert "gathering no. 1" in refusal_message(plan)


def test_parts_of_a_schema_that_no_extraction_fills_are_named() -> None:
    inner = {"type": "array", "items": {"type": "array", "items": TEXT}}
    made = schema(rows=inner, city=TEXT)
    plan = learn_plan(made, [(f"in {city}", {"city": city, "rows": [[city]]}) for city in CITIES])
    assert [one.path for one in plan.refusals] == ["/rows/*"]
    assert not is_extraction(plan)
    unused = learn_plan(made, [(f"in {city}", {"city": city}) for city in CITIES])
    assert is_extraction(unused)


def test_no_pair_at_all_is_no_extraction() -> None:
    assert not is_extraction(learn_plan(schema(city=TEXT), []))


WORDS = st.text("abc XYZ019-.,ß\u0301日\n", min_size=0, max_size=12)


@settings(max_examples=60)
@given(st.lists(st.tuples(WORDS, WORDS, st.integers(0, 99)), min_size=1, max_size=6))
def test_whatever_the_pairs_the_plan_counts_what_it_brings_back(rows: list[tuple[str, str, int]]) -> None:
    made = schema(("a",), a=TEXT, n={"type": ["integer", "null"]})
    pairs = [(f"{a} {b} {n}", {"a": a, "n": n}) for a, b, n in rows]
    plan = learn_plan(made, pairs)
    assert 0 <= plan.n_right <= plan.n_values
    fits, assembler = validator(made), Assembler(made, plan)
    for (text, _), alignment in zip(pairs, aligned(made, plan, pairs), strict=True):
        answer, fields = assembler.answer(text, alignment.spans, alignment.classes)
        assert fits(answer) == []
        assert all(one.start is None or 0 <= one.start <= one.end <= len(text) for one in fields)  # type: ignore[operator]


def test_a_class_bars_the_leaves_that_none_of_its_pairs_has() -> None:
    made = schema(("kind",), kind={"enum": ["visit", "none"]}, city=TEXT, note=TEXT)
    pairs: list[tuple[str, Any]] = [(f"visit {city} now", {"kind": "visit", "city": city}) for city in CITIES * 2]
    pairs += [(f"just a word {n}", {"kind": "none"}) for n in range(12)]
    pairs += [(f"{n} says hi", {"kind": "none", "note": "hi"}) for n in range(2)]
    rule = rule_of(learn_plan(made, pairs), "/kind")
    # two notes are too few to say that a visit has none
    paths = [one.path for one in learn_plan(made, pairs).rules]
    barred = {choice: [paths[i] for i in bars] for choice, bars in zip(rule.choices, rule.bars, strict=True)}
    assert barred == {"visit": [], "none": ["/city"]}
