"""`manage.py prices_check FILE`: what a start with this file would say, before the start."""

import json
import os
from dataclasses import replace
from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from backend.domain.money.pricing import price_books
from backend.environment import parse_catalog
from backend.usage.management.commands.prices_check import published_otherwise
from tests.backend.domain.money.test_price_file import book, table

pytestmark = pytest.mark.django_db


def said(*args: str) -> str:
    out = StringIO()
    call_command("prices_check", *args, stdout=out)
    return out.getvalue()


def test_it_says_what_is_in_force_and_what_is_to_come(tmp_path):
    assert "2026-11-26" in said()
    path = tmp_path / "prices.yaml"
    path.write_text(json.dumps({"books": [book("ours-1", "2099-01-01T00:00:00Z")]}))
    lines = said(str(path)).splitlines()
    assert [line.split()[-2:] for line in lines if "ours-1" in line] == [["to", "come"]]


@pytest.mark.parametrize("text", ["a: [", "- 1", "", "books: 3", "!!python/object:os.system {}"])
def test_a_file_that_cannot_be_read_is_refused_in_words(tmp_path, text):
    path = tmp_path / "prices.yaml"
    path.write_text(text)
    with pytest.raises(CommandError, match="cannot be used"):
        said(str(path))


def test_plans_that_are_to_come_are_refused(tmp_path):
    path = tmp_path / "prices.json"
    path.write_text(json.dumps({"plans": [table(at="2099-01-01T00:00:00Z")]}))
    with pytest.raises(ValueError, match="put them in when they hold"):
        parse_catalog(str(path))


def test_a_file_that_is_not_there_or_too_large_is_refused(tmp_path):
    with pytest.raises(ValueError, match="names no file"):
        parse_catalog(str(tmp_path / "none.yaml"))
    path = tmp_path / "large.yaml"
    path.write_bytes(os.urandom(8) * 200_000)
    with pytest.raises(ValueError, match="more than 1,000,000 bytes"):
        parse_catalog(str(path))


def test_a_published_version_with_other_prices_is_refused():
    newest = price_books()[-1]
    assert published_otherwise(newest) == []
    (fault,) = published_otherwise(replace(newest, prices=price_books()[0].prices))
    assert "published here with other prices" in fault


@pytest.mark.parametrize("text", ['{"plans": [], "plans": []}', "books:\n  - {version: a, version: b}\n"])
def test_a_name_that_stands_twice_is_refused_and_not_read_as_the_last(tmp_path, text):
    path = tmp_path / "prices.yaml"
    path.write_text(text)
    with pytest.raises(ValueError, match="is there twice; keep one"):
        parse_catalog(str(path))
