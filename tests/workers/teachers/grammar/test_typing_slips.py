"""The filter `sloppy`: slips at a known rate in a grammar that stays exact."""

import math
import random

import pytest

from workers.teachers.grammar.files import build_grammar, shipped_grammar
from workers.teachers.grammar.message_reader import Reader
from workers.teachers.grammar.pcfg import Grammar
from workers.teachers.grammar.typing_slips import GAP_SLIP, WORD_SLIP


def typed(text: str) -> Grammar:
    return build_grammar({"start": ["{said|sloppy}"], "said": [text]}, {}, revision="r")


def test_a_word_is_mistyped_at_the_stated_rate_and_all_its_forms_sum_to_one():
    grammar = typed("lamp")
    forms = dict(grammar.language("start"))
    assert math.fsum(forms.values()) == pytest.approx(1.0)
    assert forms["lamp"] == pytest.approx(1 - WORD_SLIP)
    assert {"lmp", "lmap", "lampp"} < forms.keys()
    assert "alamp" not in forms
    assert "amp" not in forms


def test_log_probs_of_slips_are_those_of_all_derivations():
    grammar = typed("two lamps, 12 cups")
    for text, p in grammar.language("start"):
        if p > 1e-5:
            total = math.fsum(q for other, q in grammar.language("start") if other == text)
            assert math.exp(grammar.logprob("start", text, temperature=1.0)) == pytest.approx(total)
            logprobs = grammar.token_logprobs("start", text, temperature=1.0)
            assert math.exp(math.fsum(logprobs)) == pytest.approx(total)


def test_numbers_and_words_for_numbers_are_never_mistyped():
    forms = [text for text, _ in typed("eleven 4711").language("start")]
    assert forms == ["eleven 4711"]


def test_a_space_between_words_is_left_out_now_and_then():
    forms = dict(typed("to me").language("start"))
    assert forms == {"to me": pytest.approx(1 - GAP_SLIP), "tome": pytest.approx(GAP_SLIP)}


def test_a_mistyped_value_is_read_as_it_stands_in_the_text():
    rules = {"mail": ["i want {thing|sloppy}"], "thing": ["kettle"]}
    slices = {"one": {"start": "{mail}", "values": {"kind": "x"}}}
    grammar = build_grammar(rules, slices, revision="r", fields={"what": {"rules": ["thing"]}})
    (reading,) = Reader(grammar).readings("i want ketlte")
    assert (reading.captures, reading.sure) == ((("what", "ketlte"),), True)


def test_every_mail_of_the_order_grammar_is_read_by_it_with_its_slice_and_values_that_stand_there():
    grammar, rng = shipped_grammar(), random.Random(8)
    reader = Reader(grammar)
    for name in ("cancel_order", "return_item", "exchange_item", "track_order", "move_delivery", "other_mail"):
        for _ in range(15):
            mail = grammar.sample(f"slice:{name}", temperature=1.0, rng=rng)
            readings = reader.readings(mail)
            assert all(reading.sure for reading in readings), mail
            assert any(reading.slice_name == name for reading in readings), mail
            assert all(value in mail for reading in readings for _, value in reading.captures), mail
