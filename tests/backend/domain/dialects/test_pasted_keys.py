"""Keys as people paste them: what can be no key is refused with a word about it, and what may be one never is."""

import pytest

from backend.domain.dialects.pasted_keys import key_problem

SECRET = "sk-proj-4f9c1d2e8b7a6053"


@pytest.mark.parametrize(
    ("pasted", "word"),
    [
        (f'"{SECRET}"', "quotation marks"),
        (f"'{SECRET}'", "quotation marks"),
        (f"\u201c{SECRET}\u201d", "quotation marks"),
        (f"Bearer {SECRET}", "begins with Bearer"),
        (f"bearer\t{SECRET}", "begins with Bearer"),
        (f"OPENAI_API_KEY={SECRET}", "variable's name"),
        (f'export ANTHROPIC_API_KEY="{SECRET}"', "variable's name"),
        (f"{SECRET[:9]}\n{SECRET[9:]}", "line break"),
        (f"{SECRET[:9]} {SECRET[9:]}", "a space"),
        (f"{SECRET[:9]}\u2013{SECRET[9:]}", "a character that no key has"),
        (f"{SECRET}\u200b", "a character that no key has"),
        ("sk-proj-...6053", "masked"),
        ("sk-proj-\u2026" + "6053", "masked"),
        ("\u2022" * 20, "masked"),
        ("sk-********6053", "masked"),
        ("sk-xxxxxxxxxxxxxxxx", "masked"),
        ("<your key>", "placeholder"),
        ("YOUR_API_KEY", "placeholder"),
        ("your-key-here", "placeholder"),
        ("https://api.openai.com/v1", "an address"),
        ("tk_01ktfz2x8e4s1c9w0m5q7r3vbd", "id of a key"),
        ('{"type": "service_account", "private_key": "x"}', "file of credentials"),
    ],
)
def test_what_can_be_no_key_is_named_and_not_repeated(pasted: str, word: str) -> None:
    problem = key_problem(pasted)
    assert problem is not None
    assert word in problem
    assert "; " in problem, "what to do"
    assert "4f9c" not in problem


@pytest.mark.parametrize(
    "key",
    [
        SECRET,
        "sk-ant-api03-AbC_dEf-123",
        "AIzaSyA-1234567890abcdefghijklmnopqrstu",
        "gsk_abcDEF123",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln",  # a token of a gateway
        "ya29.a0AfH6SMB-token",
        "QUJDREVGRw==",
        "QUJD_REVG==",
        "sk-axxxxb",
        "ABSKQmVkcm9ja0FQSUtleS0=",
        "EMPTY",  # what people give vLLM
        "none",
        "ollama",
        "sk-or-v1-0f0f",
        "x",
    ],
)
def test_what_may_be_a_key_is_one(key: str) -> None:
    assert key_problem(key) is None
