"""The question to a judge, and how its answer is read.

The question opens with lines that are the same for every batch of a slice, so that a vendor's prompt cache serves them;
the drafts follow as one line of JSON inside a fence, [id, text] each. A draft is hostile text: JSON keeps its quotes
and line breaks inside its own string, the fence is longer than any run of tildes in it, and it was written before its
id was drawn.

The answer names the drafts that are accepted, and only those: output is what verification of a short draft costs. It is
hostile too. Its whole grammar is one regular expression; what deviates from it is no answer at all. A draft that it
leaves out is refused: by omission an answer can refuse wrongly, which costs a fresh candidate, but never accept. One
that was cut off has no closing bracket and is none.
"""

import json
import re
from collections.abc import Mapping, Sequence

from workers.teachers.prompts.candidate_and_label import DATA_RULE, fence
from workers.teachers.protocol import Message

JUDGE_ASK = "Answer with the JSON array of the accepted ids alone."
# no drawn id has a vowel (judges.batches), so an answer that repeats the example is malformed
JUDGE_SYSTEM = (
    "Given a slice of a task and [id, draft] pairs, accept each draft that you could well have written as a new "
    "message of this slice: it fits the hint and any label, and someone could have typed it. Judge each by itself; "
    'some are known to be wrong. Answer with a JSON array of accepted ids, like ["ae","io"] or []. '
    f"{DATA_RULE}"
)
MAX_CHARS_PER_ID = 32
# JSON escapes C0 by itself; these would end a line, or reorder it, for some reader of the prompt
_INVISIBLE = re.compile("[\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")
_BLANK = "[ \t\r\n]*"
_ID = '"[a-z]{2}"'
_ANSWER = re.compile(rf"\[{_BLANK}(?:{_ID}(?:{_BLANK},{_BLANK}{_ID})*{_BLANK})?\]")
_ONE_ID = re.compile('"([a-z]{2})"')
_CODE_FENCE = re.compile(r"```(?:json)?\r?\n(.*)\n```", re.DOTALL)


def judge_messages(
    head: Sequence[str], slice_lines: Sequence[str], drafts: Mapping[str, str]
) -> tuple[Message, Message]:
    """`drafts` is {id: text} in the order in which they are shown."""
    lines = [*head, *slice_lines, "Drafts:", fence(as_shown(drafts)), JUDGE_ASK]
    return Message(role="system", content=JUDGE_SYSTEM), Message(role="user", content="\n".join(lines))


def as_shown(texts: Mapping[str, str]) -> str:
    """{id: text} as one line of JSON, [id, text] each, with what no reader sees written out."""
    shown = json.dumps(list(texts.items()), ensure_ascii=False, separators=(",", ":"))
    return _INVISIBLE.sub(lambda match: f"\\u{ord(match[0]):04x}", shown)


def read_verdicts(answer: str, ids: Sequence[str]) -> dict[str, bool] | None:
    """{id: whether the judge would have written it}, or None for anything but one JSON array of some of these ids, each
    at most once, in any order. White space is free and one Markdown code fence around the whole is forgiven: both are
    habits that change no verdict."""
    if len(answer) > MAX_CHARS_PER_ID * (len(ids) + 2):
        return None
    reply = answer.strip(" \t\r\n")
    fenced = _CODE_FENCE.fullmatch(reply)
    if fenced is not None:
        reply = fenced[1].strip(" \t\r\n")
    if _ANSWER.fullmatch(reply) is None:
        return None
    named = _ONE_ID.findall(reply)
    if len(set(named)) < len(named) or not set(named) <= set(ids):
        return None
    return {id_: id_ in named for id_ in ids}
