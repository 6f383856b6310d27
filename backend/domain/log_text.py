"""What a log line says of an exception: its type, its place and its codes, but no word that came from outside.

Exceptions carry values: Postgres' DETAIL prints the row, a KeyError the label, a parser the text that it could not
read. `guard_logs` stands before every handler of a process, those of its server and its libraries too, so that nobody
has to remember. What is kept of a message: what stands in the source code as it is, and what connections say when
nobody answers.
"""

import logging
import re
import sys
import threading
import traceback
from collections.abc import Iterator, Mapping
from types import CodeType, TracebackType
from typing import Any

_CODE = re.compile(r"[a-z][a-z0-9_.]{1,60}")
_SCHEMA_NAMES = ("constraint_name", "table_name", "column_name")
# of an address that does not answer: they name it, and no statement, row or body
_SAY_WHERE = frozenset(
    {
        "gpu_runners.client.Unreachable",
        "gpu_runners.config.BadSetting",
        "httpx.ConnectError",
        "httpx.ConnectTimeout",
        "httpx.ReadTimeout",
        "redis.exceptions.ConnectionError",
        "redis.exceptions.TimeoutError",
    }
)
_log = logging.getLogger("kolm.uncaught")


def told(error: BaseException) -> str:
    """One line: type, codes, and the message where the code spells it out; then the same of what caused it."""
    return " < ".join(_told_alone(one) for one in _chain(error))


def told_with_places(error: BaseException) -> str:
    """A traceback whose messages are `told`'s, the cause first."""
    parts = []
    for one in reversed(list(_chain(error))):
        parts.append("".join(traceback.format_tb(one.__traceback__)) + _told_alone(one))
        if isinstance(one, BaseExceptionGroup):
            parts += [told_with_places(inner) for inner in one.exceptions]
    return "Traceback (most recent call last):\n" + "\n\nwhich led to:\n\n".join(parts)


def guard_logs() -> None:
    """From now on all that this process logs, uncaught exceptions too, is free of texts from outside. May be called
    again."""
    made = logging.getLogRecordFactory()
    if isinstance(made, _GuardedFactory):
        return
    logging.setLogRecordFactory(_GuardedFactory(made))
    sys.excepthook = _uncaught
    threading.excepthook = _uncaught_in_thread
    sys.unraisablehook = _unraisable


class _GuardedFactory:
    def __init__(self, make: Any) -> None:
        self._make = make

    def __call__(self, *args: Any, **kwargs: Any) -> logging.LogRecord:
        record: logging.LogRecord = self._make(*args, **kwargs)
        if isinstance(record.msg, BaseException):
            record.msg, record.args = told(record.msg), None
        elif record.name == "asyncio" and isinstance(record.msg, str):
            record.msg = record.msg.partition("\n")[0]  # the lines after it print tasks with their exceptions
        record.args = _told_args(record)
        if record.exc_info and record.exc_info[1] is not None:
            record.exc_text = told_with_places(record.exc_info[1])  # formatters print it instead of their own
        return record


def _told_args(record: logging.LogRecord) -> Any:
    args, error = record.args, record.exc_info[1] if record.exc_info else None
    if isinstance(args, Mapping):
        # Celery's lines of a failed task, which hold its exception and its arguments as text
        hidden = {"exc", "traceback", "args", "kwargs", "return_value"} if record.name.startswith("celery.") else set()
        said = told(error) if error else "…"
        return {name: said if name in hidden else _told_arg(value) for name, value in args.items()}
    if isinstance(args, tuple):
        return tuple(map(_told_arg, args))
    return args


def _told_arg(value: object) -> object:
    return told(value) if isinstance(value, BaseException) else value


def _told_alone(error: BaseException) -> str:
    kind = type(error)
    name = f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")
    words = [*_codes(error), *_message(error, name)]
    return f"{name}: {', '.join(words)}" if words else name


def _codes(error: BaseException) -> Iterator[str]:
    if sqlstate := getattr(error, "sqlstate", None):
        yield str(sqlstate)
        diag = getattr(error, "diag", None)
        yield from (str(found) for name in _SCHEMA_NAMES if (found := getattr(diag, name, None)))
        return
    ours = getattr(error, "code", None)
    if isinstance(ours, str) and _CODE.fullmatch(ours):
        yield ours
    if isinstance(error, OSError) and isinstance(error.errno, int) and isinstance(error.strerror, str):
        yield f"[Errno {error.errno}] {error.strerror}"


def _message(error: BaseException, name: str) -> Iterator[str]:
    # a libpq error without a state never reached a server that could have quoted a statement
    is_of_connection = name == "psycopg.OperationalError" and getattr(error, "sqlstate", None) is None
    if name in _SAY_WHERE or is_of_connection:
        yield str(error).partition("\n")[0]
    elif error.args and all(isinstance(arg, str) for arg in error.args):
        literals = _literals(error.__traceback__)
        if all(arg in literals for arg in error.args):
            yield " ".join(error.args)


def _literals(trace: TracebackType | None) -> frozenset[str]:
    """The strings that stand in the code of the frames on the way."""
    found: set[str] = set()
    while trace is not None:
        found.update(_strings(trace.tb_frame.f_code))
        trace = trace.tb_next
    return frozenset(found)


def _strings(compiled: CodeType) -> Iterator[str]:
    return (constant for constant in compiled.co_consts if isinstance(constant, str))


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    at: BaseException | None = error
    while at is not None and id(at) not in seen:
        seen.add(id(at))
        yield at
        at = at.__cause__ or (None if at.__suppress_context__ else at.__context__)


def _uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt):
        return
    _log.critical("the process ends", exc_info=(kind, error, trace))


def _uncaught_in_thread(args: "threading.ExceptHookArgs") -> None:
    if args.exc_value is None or issubclass(args.exc_type, SystemExit):
        return
    name = args.thread.name if args.thread else "?"
    _log.error("the thread %s has ended", name, exc_info=(args.exc_type, args.exc_value, args.exc_traceback))


def _unraisable(args: Any) -> None:
    if args.exc_value is not None:
        _log.error("ignored in a finalizer", exc_info=(args.exc_type, args.exc_value, args.exc_traceback))
