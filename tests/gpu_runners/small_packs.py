"""Recipes and rules of our own making for artifacts of tests, and artifacts that ship them."""

import json
from collections.abc import Sequence
from typing import Any

from backend.domain.canonical import canonical_json
from backend.domain.recipes.pack import BEGIN, Recipe, RecipePack
from backend.domain.recipes.shapes import SHAPE_VERSION
from backend.domain.rules.rule_list import Evidence, FieldRule, LabelRule, RuleList
from gpu_runners.models.causal_base import CausalBase

BRACE, OPENING = "{", '"size": "'  # how every answer of `small_generative.SCHEMA` begins


def ids_of(base: CausalBase, text: str) -> tuple[int, ...]:
    return tuple(int(i) for i in base.tokenizer(text)["input_ids"])


def small_pack(base: CausalBase, *, sources: Sequence[str] = ("pack", "schema", "prompt"), **changed: Any) -> bytes:
    """One recipe: how an answer begins that begins with a brace."""
    after, run = ids_of(base, BRACE), ids_of(base, OPENING)
    opening = Recipe(
        after=(BEGIN, *after), shape="", run=run, after_text=BRACE, run_text=OPENING, support=40, agreed=40
    )
    given: dict[str, Any] = {
        "tokenizer_sha256": base.tokenizer_sha256,
        "base": base.name,
        "recipes": (opening,),
        "shape_version": SHAPE_VERSION,
        "sources": tuple(sources),
    }
    return RecipePack(**(given | changed)).to_bytes()


def label_rules(*rules: tuple[str, str]) -> bytes:
    """A list of (word, label)."""
    proof = Evidence(seen=30, support=20, right=20, low_ppm=970_000)
    made = [LabelRule(when=(word,), unless=(), answer=label, evidence=proof) for word, label in rules]
    return RuleList(task="label", rules=tuple(made)).to_bytes()


def json_rules(word: str) -> bytes:
    """Of a text with `word`: a small one, three of it."""
    proof = Evidence(seen=30, support=20, right=20, low_ppm=970_000)

    def field(number: int, value: str | int) -> FieldRule:
        return FieldRule(field=number, when=(word,), unless=(), value=value, copy=None, is_absent=False, evidence=proof)

    rules = (field(0, "small"), field(1, 3))
    return RuleList(task="json", rules=rules, fields=(("size",), ("n",)), low_ppm=960_000).to_bytes()


RULED = json.dumps({"size": "small", "n": 3})  # what `json_rules` answer


def spec_of(**recipes: Any) -> bytes:
    """A spec.json with these settings of recipes."""
    return canonical_json({"name": "orders", "recipes": recipes})
