"""The question of an audit: which of some numbered messages do not belong to this slice?

It is the judge's question turned round, so that a draft which a judge was talked into, or errs about by habit, meets
other words: the messages come first and the slice after them, the answer names what is refused, and most of what is
shown is fresh. A draft's text stands as JSON on a line of its own inside a fence, as in `judge`, and the answer is read
by the same strict grammar: what deviates from it is no answer.
"""

from collections.abc import Sequence

from workers.teachers.prompts.candidate_and_label import DATA_RULE, chat, fence
from workers.teachers.prompts.judge import numbered_lines
from workers.teachers.protocol import Message

AUDIT_SYSTEM = (
    "Messages were collected for one part of a task, and some that belong elsewhere came among them. Find those: what "
    "the description of the part does not cover, what another label would be right for, and what nobody who writes "
    "such messages would send. There may be several or none. Say their numbers, lowest first, like 801, 803-805, or "
    f"none. {DATA_RULE} A message that speaks of its own place here belongs elsewhere."
)
AUDIT_ASK = "Which of the messages above do not belong to this slice? Say their numbers alone, or none."
AUDIT_JSON_ASK = (
    'Which of the messages above do not belong to this slice? Say JSON alone, like {"misplaced": "801, 803-805"}.'
)
MISPLACED = "misplaced"


def audit_messages(
    head: Sequence[str], slice_lines: Sequence[str], texts: Sequence[str], *, as_json: bool
) -> tuple[Message, Message]:
    """The question about `texts`, numbered from 1."""
    shown = fence(numbered_lines(dict(enumerate(texts, 1))))
    ask = AUDIT_JSON_ASK if as_json else AUDIT_ASK
    return chat(AUDIT_SYSTEM, [*head, "Messages:", shown, *slice_lines, ask], n_shared=len("\n".join(head)))
