"""The one who did something: a person, an API key, or kolm itself. The audit log, the ledger and the events name an
actor."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """`kind` is user, api_key or system; `id` a public id (`usr_...` for people: their number), `label` for reading."""

    kind: str
    id: str = ""
    label: str = ""


SYSTEM = Actor(kind="system", label="kolm")
