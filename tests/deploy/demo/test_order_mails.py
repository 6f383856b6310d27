"""The mails of `make demo-json`: answers that fit the example's schema, and a verdict that compares."""

import json
import math
from typing import Any

import pytest
import yaml

from backend.domain.spec.gold import normalise
from backend.domain.spec.parsing import JsonOutput, Spec, parse_spec
from deploy.demo.order_extractor import SPEC
from deploy.demo.order_mails import MAILS, AskedMail, count_right, is_right, report
from deploy.embedded.home import ROOT
from workers.scoring.answer_checks import judge_answers
from workers.teachers.grammar.files import shipped_grammar


@pytest.fixture(scope="module")
def spec() -> Spec:
    return parse_spec(yaml.safe_load((ROOT / SPEC).read_text()))


def test_every_answer_fits_the_schema_and_passes_the_checks_of_the_example(spec):
    assert isinstance(spec.output, JsonOutput)
    rows = [(asked.mail, json.dumps(asked.answer)) for asked in MAILS]
    assert [failed for failed in judge_answers(spec.output, rows) if failed] == []


def test_no_mail_is_gold_or_of_the_grammar(spec):
    gold = {normalise(row.input) for row in spec.examples.inline}
    assert not gold & {normalise(asked.mail) for asked in MAILS}
    grammar = shipped_grammar()
    starts = [part.start for part in grammar.slices.values() if part.values]
    for asked in MAILS:
        assert all(grammar.logprob(start, asked.mail, temperature=1.0) == -math.inf for start in starts), asked.mail


def test_the_mails_have_a_typo_two_orders_and_none():
    assert any("parcl" in asked.mail for asked in MAILS)
    assert {len(asked.orders) for asked in MAILS} == {0, 1, 2}


def changed(asked: AskedMail, **fields: Any) -> str:
    return json.dumps(asked.answer | fields)


def test_an_answer_is_right_only_as_a_whole():
    two = next(asked for asked in MAILS if len(asked.orders) == 2 and asked.orders[0][1])
    assert is_right(two, json.dumps(two.answer))
    assert "right" in report(two, json.dumps(two.answer)).plain
    for reply in (changed(two, action="cancel"), changed(two, orders=two.answer["orders"][:1]), "no JSON", ""):
        assert not is_right(two, reply)
        assert "wrong: " in report(two, reply).plain


def test_values_that_stand_in_the_wrong_entry_are_wrong_and_the_report_names_the_fault():
    two = next(asked for asked in MAILS if len(asked.orders) == 2 and asked.orders[0][1])
    assert "in other places" in report(two, changed(two, orders=two.answer["orders"][::-1])).plain
    assert "lacks /action return; should not have /action track" in report(two, changed(two, action="track")).plain


def test_the_count_is_of_answers_that_are_right_as_a_whole():
    replies = [json.dumps(asked.answer) for asked in MAILS]
    assert count_right(replies).startswith(f"{len(MAILS)} of {len(MAILS)} ")
    assert count_right([*replies[:-1], "{}"]).startswith(f"{len(MAILS) - 1} of {len(MAILS)} ")
