"""The formats that a schema of an answer may ask of a text. Each is judged in time linear in the text."""

import datetime
import ipaddress
import re
from collections.abc import Callable

_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_EMAIL = re.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9-]{1,63}(\.[A-Za-z0-9-]{1,63}){1,8}")
_TIME = re.compile(r"\d\d:\d\d:\d\d(\.\d{1,9})?([zZ]|[+-]\d\d:\d\d)")


def _reads(read: Callable[[str], object]) -> Callable[[str], bool]:
    def is_one(text: str) -> bool:
        try:
            read(text)
        except ValueError:
            return False
        return True

    return is_one


def _is_date(text: str) -> bool:
    return len(text) == 10 and text[4] == text[7] == "-" and _reads(datetime.date.fromisoformat)(text)


def _is_time(text: str) -> bool:
    if _TIME.fullmatch(text) is None:
        return False
    return _reads(datetime.time.fromisoformat)(re.sub(r"\.\d+", "", text).upper())


FORMATS: dict[str, Callable[[str], bool]] = {
    "date": _is_date,
    "time": _is_time,
    "date-time": lambda text: text[10:11] in "Tt" and _is_date(text[:10]) and _is_time(text[11:]),
    "email": lambda text: _EMAIL.fullmatch(text) is not None,
    "uuid": lambda text: _UUID.fullmatch(text) is not None,
    "ipv4": _reads(ipaddress.IPv4Address),
    "ipv6": lambda text: "%" not in text and _reads(ipaddress.IPv6Address)(text),
}
