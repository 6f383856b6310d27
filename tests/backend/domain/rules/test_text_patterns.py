import time

import pytest

from backend.domain.rules.text_patterns import SOURCES, spans_of

TEXT = (
    'Order A-2048 of 2024-05-01, 3 cups for $12.50 (was 14.00), "blue ones", by 10:30 pm: a.b@c.org, https://x.y/z?q=1'
)


@pytest.mark.parametrize(
    ("pattern", "texts"),
    [
        ("code", ["A-2048"]),
        ("date", ["2024-05-01"]),
        ("integer", ["3"]),
        ("money", ["$12.50"]),
        ("quoted", ["blue ones"]),
        ("time", ["10:30 pm"]),
        ("email", ["a.b@c.org"]),
        ("url", ["https://x.y/z?q=1"]),
    ],
)
def test_a_pattern_finds_what_it_is_named_after(pattern: str, texts: list[str]) -> None:
    assert [TEXT[start:end] for start, end in spans_of(pattern, TEXT)] == texts


@pytest.mark.parametrize("pattern", sorted(SOURCES))
@pytest.mark.parametrize(
    "piece", ['"', "a", "1", "a.", "1,", "a@", "1:", "http://", "-", "a-", '"\n', "$", "a@a.", "A1-"]
)
def test_no_text_makes_a_pattern_run_for_long(pattern: str, piece: str) -> None:
    """Linear: a million characters take about as long as ten times a hundred thousand."""
    text = piece * (100_000 // len(piece))
    started = time.process_time()
    spans_of(pattern, text)
    assert time.process_time() - started < 1.0
