"""The mails that `make demo-json` asks about, each with its right answer: both written by hand before any model saw
them, and none of them among the gold of examples/order-extractor.yaml. An answer is right when it equals the one here.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rich.text import Text

from backend.domain.answers.json_values import BadAnswer, is_exact, leaves, parse_answer


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedMail:
    mail: str
    action: str
    orders: tuple[tuple[str | None, str | None, int | None], ...] = ()  # order number, product, quantity
    date: str | None = None

    @property
    def answer(self) -> dict[str, Any]:
        names = ("order_number", "product", "quantity")
        orders = [dict(zip(names, order, strict=True)) for order in self.orders]
        return {"action": self.action, "orders": orders, "date": self.date}


MAILS = (
    AskedMail(
        mail="Please cancel order 88317, I found the lamp elsewhere.",
        action="cancel",
        orders=(("88317", "lamp", None),),
    ),
    AskedMail(
        mail="wher is my parcl?? KX-20418, should of come on tuesday",
        action="track",
        orders=(("KX-20418", None, None),),
    ),
    AskedMail(
        mail="Hello, the two soup bowls from order 77120 came broken, can I get intact ones? Best wishes, Ingrid Vale, "
        "14 Harbour Street",
        action="exchange",
        orders=(("77120", "soup bowls", 2),),
    ),
    AskedMail(
        mail="I would like to send back the green raincoat (order 40981) and 3 tea towels (order 41007). "
        "Neither is what I expected.",
        action="return",
        orders=(("40981", "green raincoat", None), ("41007", "tea towels", 3)),
    ),
    AskedMail(
        mail="we are not at home on monday, cud you bring the bookshelf on Thursday instead? its order A-5561",
        action="reschedule",
        orders=(("A-5561", "bookshelf", None),),
        date="Thursday",
    ),
    AskedMail(mail="Hi, do you have the garden bench in white as well, and what does it cost?", action="none"),
    AskedMail(
        mail="Orders 60233 and 60251 were placed by my son without asking. I don't want either of them.",
        action="cancel",
        orders=(("60233", None, None), ("60251", None, None)),
    ),
    AskedMail(mail="Thank you so much, everything arrived in one piece. Greetings from Lisbon!", action="none"),
)


def is_right(asked: AskedMail, reply: str) -> bool:
    try:
        return is_exact(parse_answer(reply), asked.answer)
    except BadAnswer:
        return False


def report(asked: AskedMail, reply: str) -> Text:
    """The mail, the answer as it came, and whether it is right; where it is not, what it lacks and what it should not
    have."""
    text = Text(f"\n{asked.mail}\n", style="bold")
    text.append(f"  {reply.strip()}\n", style="not bold")
    if is_right(asked, reply):
        return text.append("  right", style="green not bold")
    differences = list(_differences(asked, reply)) or ["the values are right, in other places than these"]
    return text.append(f"  wrong: {'; '.join(differences)}", style="red not bold")


def count_right(replies: Sequence[str]) -> str:
    n_right = sum(is_right(asked, reply) for asked, reply in zip(MAILS, replies, strict=True))
    return f"{n_right} of {len(MAILS)} answers are right as a whole"


def _differences(asked: AskedMail, reply: str) -> Iterator[str]:
    try:
        theirs = leaves(parse_answer(reply))
    except BadAnswer:
        yield "this is no JSON"
        return
    ours = leaves(asked.answer)
    for path, _, value in ours - theirs:
        yield f"lacks {path} {value}"
    for path, _, value in theirs - ours:
        yield f"should not have {path} {value}"
