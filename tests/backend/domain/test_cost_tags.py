"""Cost tags: bounded, safe wherever they are written, and one of two with a name wins."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.domain.cost_tags import MOST_TAGS, check_tags, merge, read_tags, tag_line
from backend.domain.errors import InvalidInput, InvalidSpec
from backend.domain.spec.parsing import canonical_spec, parse_spec, spec_json_schema
from tests.compile_factories import small_spec

names = st.from_regex(r"[a-z][a-z0-9_-]{0,31}", fullmatch=True)
values = st.from_regex(r"[A-Za-z0-9]([A-Za-z0-9 ._/@+-]{0,62}[A-Za-z0-9])?", fullmatch=True)


@given(tags=st.dictionaries(names, values, max_size=MOST_TAGS))
def test_a_line_of_tags_is_read_as_it_was_written(tags: dict[str, str]) -> None:
    assert read_tags(tag_line(tags)) == check_tags(tags) == tags


@pytest.mark.parametrize(
    "tags",
    [
        {"Team": "search"},
        {"team": ""},
        {"team": "=cmd|calc"},
        {"team": "@x"},
        {"team": "a\nb"},
        {"team": "a\x00"},
        {"team": "‮gpj"},
        {"team": "<b>x</b>"},
        {"team": "x" * 65},
        {"x" * 33: "a"},
        {f"t{i}": "a" for i in range(MOST_TAGS + 1)},
    ],
)
def test_what_is_no_tag_is_refused(tags: dict[str, str]) -> None:
    with pytest.raises(InvalidInput) as caught:
        check_tags(tags)
    assert caught.value.code == "bad_tags"
    with pytest.raises(InvalidSpec):
        parse_spec(small_spec(tags=tags))


@pytest.mark.parametrize("line", ["team", "team=a, team=b", "=x"])
def test_a_line_that_is_no_list_of_tags_is_refused(line: str) -> None:
    with pytest.raises(InvalidInput):
        read_tags(line)


def test_the_upper_one_of_two_tags_counts() -> None:
    assert merge(under={"team": "a", "env": "ci"}, over={"team": "b"}) == {"team": "b", "env": "ci"}


def test_a_spec_carries_tags_and_its_schema_says_their_bounds() -> None:
    spec = parse_spec(small_spec(tags={"team": "search"}))
    assert canonical_spec(spec)["tags"] == {"team": "search"}
    assert parse_spec(small_spec()).tags == {}
    schema = spec_json_schema()["properties"]["tags"]
    assert (schema["maxProperties"], schema["propertyNames"]["pattern"][0]) == (MOST_TAGS, "^")
