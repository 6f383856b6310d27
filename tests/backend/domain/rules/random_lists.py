"""Rule lists and texts at random, over few words, so that they meet often."""

import random
from dataclasses import replace

from backend.domain.rules.rule_list import Condition, Copy, Evidence, FieldIs, FieldRule, LabelRule, RuleList
from backend.domain.rules.text_patterns import SOURCES

WORDS = ("top", "up", "a", "the", "card", "größe", "кот", "注", "文", "😀", "naïve", "x2", "12", "dont", "refund")
RAW = (
    *("Top", "UP", "a", "the", "card", "GRÖßE", "Größe", "КОТ", "注文", "文", "😀", "naïve", "NAÏVE", "x2", "12"),
    *("007", "don't", "don’t", "refund", "top-up", "A-2048", "$12.50", "€ 3", "2024-05-01", "10:30 pm", "a.b@c.org"),
    *("1,200.5", "https://x.y/z?q=1", '"said so"', '"', "'", "\ud800", "\x7f", "\x00", "\n", "ΣΑΣ", "\u2028", "。"),
    *("?", "__proto__"),
)
EVIDENCE = Evidence(seen=3, support=2, right=2, low_ppm=223_606)


def random_text(rng: random.Random) -> str:
    gaps = (" ", " ", " ", ", ", "", "\t")
    return "".join(rng.choice(RAW) + rng.choice(gaps) for _ in range(rng.randrange(9)))


def random_phrase(rng: random.Random, *, has_marks: bool = True) -> str:
    words = [rng.choice(WORDS) for _ in range(rng.randint(1, 3))]
    if not has_marks:
        return " ".join(words)
    if rng.random() < 0.2:
        words = ["#" if word == "12" or rng.random() < 0.3 else word for word in words]
    return " ".join([*["^"] * (rng.random() < 0.1), *words, *["$"] * (rng.random() < 0.1)])


def random_condition(rng: random.Random) -> str:
    return f"<{rng.choice(sorted(SOURCES))}>" if rng.random() < 0.1 else random_phrase(rng)


def label_list(rng: random.Random) -> RuleList:
    rules = [
        LabelRule(
            when=tuple(random_condition(rng) for _ in range(rng.choice((1, 1, 2, 3)))),
            unless=tuple(random_condition(rng) for _ in range(rng.choice((0, 0, 1, 2)))),
            answer=rng.choice(("top_up", "refund", "größe", "</script>${x}`\u2028")),
            evidence=EVIDENCE,
        )
        for _ in range(rng.randrange(12))
    ]
    return RuleList(task="label", rules=tuple(rules))


FIELDS = (("action",), ("order", "nr"), ("order", "item"), ("__proto__",))


def field_list(rng: random.Random) -> RuleList:
    order = rng.sample(range(len(FIELDS)), len(FIELDS))
    rules = [_field_rule(rng, field, order[:at]) for at, field in enumerate(order) for _ in range(rng.randint(1, 4))]
    vocabularies = tuple(tuple(sorted({random_phrase(rng, has_marks=False) for _ in range(4)})) for _ in range(2))
    return RuleList(
        task="json", rules=tuple(rules), fields=FIELDS, vocabularies=vocabularies, known=tuple(sorted(WORDS[:11]))
    )


def hanging_list(rng: random.Random) -> RuleList:
    """The first field is always given, and what gives the others depends on it, and on each other."""
    fields = range(len(FIELDS))
    values = ("card", 12, None)
    rules = [_constant(0, rng.choice(values), (random_condition(rng),)) for _ in range(3)]
    rules.append(_constant(0, rng.choice(values), ()))
    for field in fields[1:]:
        for _ in range(rng.randint(1, 4)):
            asked = FieldIs(field=0 if rng.random() < 0.7 else rng.randrange(field), value=rng.choice((*values, "up")))
            when = (asked, *([random_condition(rng)] if rng.random() < 0.3 else ()))
            made = _field_rule(rng, field, []) if rng.random() < 0.3 else _constant(field, rng.choice(values), when)
            rules.append(replace(made, unless=(asked,), when=()) if rng.random() < 0.1 else made)
        if rng.random() < 0.8:
            rules.append(_constant(field, rng.choice(values), ()))
    vocabularies = (("card", "top up"), ("größe", "the card"))
    return RuleList(
        task="json", rules=tuple(rules), fields=FIELDS, vocabularies=vocabularies, known=tuple(sorted(WORDS[:11]))
    )


def _constant(field: int, value: str | int | None, when: tuple[Condition, ...]) -> FieldRule:
    return FieldRule(
        field=field, when=when, unless=(), value=value, copy=None, is_absent=value is None, evidence=EVIDENCE
    )


def _field_rule(rng: random.Random, field: int, earlier: list[int]) -> FieldRule:
    when: list[Condition] = [random_condition(rng)] if rng.random() < 0.4 else []
    if earlier and rng.random() < 0.4:
        when.append(FieldIs(field=rng.choice(earlier), value=rng.choice((None, "12", 12, True, 1, "card"))))
    if rng.random() < 0.2:
        when.append("<known>")
    kind = rng.choice(("value", "copy", "copy", "absent"))
    return FieldRule(
        field=field,
        when=tuple(when),
        unless=(random_condition(rng),) if rng.random() < 0.2 else (),
        value=rng.choice((None, "", 'a"\\\n\x7f\u2028', 12, -3, True, False)) if kind == "value" else None,
        copy=random_copy(rng) if kind == "copy" else None,
        is_absent=kind == "absent",
        evidence=EVIDENCE,
    )


def random_copy(rng: random.Random) -> Copy:
    after = random_phrase(rng, has_marks=False) if rng.random() < 0.3 else ""
    kind = rng.choice(("pattern", "vocabulary", "between"))
    if kind == "vocabulary":
        return Copy(vocabulary=rng.randrange(2), after=after)
    if kind == "between":
        ends = [rng.choice((*"^$", random_phrase(rng, has_marks=False))) for _ in range(2)]
        return Copy(between=(ends[0], ends[1]))
    pattern = rng.choice(sorted(SOURCES))
    return Copy(pattern=pattern, after=after, as_number=pattern in ("number", "integer") and rng.random() < 0.5)
