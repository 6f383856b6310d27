"""Numbers that are written as words, up to twelve."""

import re

NUMBER_WORDS = {
    word: n
    for n, word in enumerate("zero one two three four five six seven eight nine ten eleven twelve".split())  # noqa: SIM905
} | {"dozen": 12, "a dozen": 12}


def number_of(text: str) -> int | None:
    """The first number in digits, or the number that the whole text is a word for."""
    digits = re.search(r"[0-9]{1,9}", text)
    return int(digits[0]) if digits else NUMBER_WORDS.get(text.casefold().strip())
