"""Answers about 110 numbers that deviate from ranges of them, each in one way."""

MALFORMED = (
    *("3, 1", "1-5, 4-9", "1-5, 5", "2, 2", "5-3", "1-10, 9-12", "7-9, 1-3", "111", "100-111", "1-1000000"),
    *("0", "0-4", "01", "1-02", "-3", "1-", "-", ",", "1,", ",1", "1,,2", "1 2", "1;2", "1-3 5", "1 and 2"),
    *("1..4", "1-2-3", "1--3", "1\u20143", "1\u22123", "\u0661-\u0663", "\uff11", "1.5", "1e1", "+1", "0x1"),
    *("1_0", "#1", "1)", "1:", "a", "all", "None of them.", "none.", "none, 1", "1, none", "", " ", "[]"),
    *("[1, 2]", '"1-3"', "1-3.", "accepted: 1-3", "*1*", "Sure! 1-3", "1-3\nThese fit.", "I accept 1-3"),
    *("<think>2 is odd</think>1-3", "1-3\n\n4-5 are not", "\ufeff1", "1\xa0", "{}", '{"accepted": null}'),
    *('{"accepted": true}', '{"accepted": 3}', '{"accepted": [[1]]}', '{"accepted": [1.0]}'),
    *('{"accepted": [true]}', '{"accepted": ["a"]}', '{"accepted": [3, 1]}', '{"accepted": ["1-3", "2"]}'),
    *('{"ids": "1"}', '{"accepted": "1", "accepted": "2"}', '{"accepted": "1", "note": "x"}'),
    *('{"accepted": "1"', '{"accepted": "5-3"}', '{"Accepted": "1"}', '[{"accepted": "1"}]'),
    *('{"accepted": {"accepted": "1"}}', '{"accepted": "1"} done', "{" * 5000),
    *('{"accepted": "1-3"}\n{"accepted": "4"}', "```\n1\n```\n```\n2\n```", "```1```", "```json\n1\n``` ok"),
    *("```py\n1\n```", "1" * 5000, "1, " * 3000 + "1", " " * 5000 + "1", '{"accepted": ' + "9" * 5000 + "}"),
)
