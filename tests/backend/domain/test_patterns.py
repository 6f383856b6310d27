"""A customer's pattern runs for about a second at the very most, or it is refused."""

import time

import pytest

from backend.domain.patterns import MAX_MATCHED_CHARS, UnsafePattern, compile_pattern, found_in


@pytest.mark.parametrize(
    "pattern",
    [
        "(a+)+$",
        "(a|aa)+$",
        "(a|a)*b",
        "(?i)(ab|Ab)*c",
        "(?:a{1,9}){1,9}b",
        "(x+x+)+y",
        "(?=(a+)+)b",
        "^(([a-z])+.)+[A-Z]([a-z])+$",
        "(a?){60}b",
        "^(a*)*(b*)*c",
        "(?m)^.*.*.*x",
        r".*.*.*x",
        r"(.)\1",
        "(?P<a>x)(?(a)b|c)",
        "(",
        "a{99999999999}",
        "x" * 501,
    ],
)
def test_a_pattern_that_could_run_for_long_is_refused(pattern: str) -> None:
    with pytest.raises(UnsafePattern):
        compile_pattern(pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        "refund",
        r"(?i)\brefund(s|ed)?\b",
        ".*refund.*",
        r"^\d+-\d+-\d+$",
        r"\d{1,9}-\d{1,9}",
        r"[a-z0-9._]+@[a-z0-9.]+\.com",
        "(foo|bar)+x",
        "^(?:[^,]*,){3}x",
        "^.*.*.*x$",
    ],
)
def test_an_allowed_pattern_is_quick_on_texts_made_to_stall_it(pattern: str) -> None:
    compiled = compile_pattern(pattern)
    n = MAX_MATCHED_CHARS
    for unit in ("a", "1", "1-", "a@a.", "foobar", ",", "refund"):
        started = time.process_time()
        compiled.search((unit * n)[:n])
        assert time.process_time() - started < 3


def test_only_the_length_that_was_vouched_for_is_searched() -> None:
    assert found_in("needle", "x" * 900 + "needle")
    assert not found_in("needle", "x" * 1000 + "needle")
