"""The text of an exception in a log line: its type, its place and its codes, but no word that came from outside.

Exceptions carry values: Postgres' DETAIL prints the row, a KeyError the label, a parser the text that it could not
read. `guard_logs` stands before every handler of a process, those of its server and its libraries too, so that nobody
has to remember. What is kept of a message: what stands in the source code as it is, and what connections say when
nobody answers.
"""

import logging
import os
import re
import sys
import threading
import traceback
import warnings
from collections.abc import Iterator, Mapping
from types import CodeType, TracebackType
from typing import Any

_CODE = re.compile(r"[a-z][a-z0-9_.]{1,60}")
_OURS = ("backend.", "workers.", "gpu_runners.")
_WORDS = re.compile(r"(\[[A-Za-z]+:? ?[A-Z0-9_-]+\])?[A-Za-z ,-]*")  # of httpx, up to what a certificate is for
_QUOTES = re.compile(r"[\n(<{'\"]")
_SHORT, _LONG = 4, 24  # fewer characters stand in any line by chance; so many alike are no chance
_SCHEMA_NAMES = ("constraint_name", "table_name", "column_name")
# of an address that does not answer, or of a variable of the environment: they name it, and no statement, row or body
_SAY_WHERE = frozenset(
    {
        "gpu_runners.http.Unreachable",
        "django.core.exceptions.ImproperlyConfigured",
        "gpu_runners.config.BadSetting",
        "httpx.ConnectError",
        "httpx.ConnectTimeout",
        "httpx.ReadTimeout",
        "redis.exceptions.ConnectionError",
        "redis.exceptions.TimeoutError",
    }
)
_log = logging.getLogger("kolm.uncaught")


def describe(error: BaseException) -> str:
    """One line: type, codes, and the message where the code spells it out; then the same of what caused it."""
    return " < ".join(_describe_alone(one) for one in _chain(error))


def describe_with_places(error: BaseException) -> str:
    """A traceback whose messages are `describe`'s, the cause first."""
    parts = []
    for one in reversed(list(_chain(error))):
        parts.append("".join(traceback.format_tb(one.__traceback__)) + _describe_alone(one))
        if isinstance(one, BaseExceptionGroup):
            parts += [describe_with_places(inner) for inner in one.exceptions]
    return "Traceback (most recent call last):\n" + "\n\nwhich led to:\n\n".join(parts)


def guard_logs() -> None:
    """Guard the logs: from now on all that this process logs, uncaught exceptions too, is free of texts from outside.
    May be called again."""
    made = logging.getLogRecordFactory()
    if isinstance(made, _GuardedFactory):
        return
    logging.setLogRecordFactory(_GuardedFactory(made))
    sys.excepthook = _uncaught
    threading.excepthook = _uncaught_in_thread
    sys.unraisablehook = _unraisable
    warnings.showwarning = _warn
    logging.Handler.handleError = _unprintable  # type: ignore[assignment, method-assign]


class _GuardedFactory:
    def __init__(self, make: Any) -> None:
        self._make = make

    def __call__(self, *args: Any, **kwargs: Any) -> logging.LogRecord:
        record: logging.LogRecord = self._make(*args, **kwargs)
        error = record.exc_info[1] if record.exc_info else None
        handled = sys.exc_info()[1]
        # who logs `str(error)` instead of the error, as Django does of a bad Host
        words = {word for each in (error, handled) if each for one in _chain(each) for word in _words(one)}
        if isinstance(record.msg, BaseException):
            record.msg, record.args = describe(record.msg), None
        elif isinstance(record.msg, str):
            record.msg = _without(_first_line(record), words)
        record.args = _guarded_args(record, error, words)
        if error is not None:
            record.exc_text = describe_with_places(error)  # formatters print it instead of their own
        return record


def _first_line(record: logging.LogRecord) -> str:
    """The message, without what two writers of messages append to it as text: asyncio prints callbacks and tasks with
    their arguments, granian tracebacks."""
    if record.name == "asyncio":
        return _QUOTES.split(record.msg, maxsplit=1)[0]
    return str(record.msg).partition("\n")[0] if record.name == "_granian" else str(record.msg)


def _guarded_args(record: logging.LogRecord, error: BaseException | None, words: set[str]) -> Any:
    args = record.args
    if isinstance(args, Mapping):
        # Celery's lines of a failed task, which hold its exception and its arguments as text
        hidden = {"exc", "traceback", "args", "kwargs", "return_value"} if record.name.startswith("celery.") else set()
        description = describe(error) if error else "…"
        return {name: description if name in hidden else _guarded_arg(value, words) for name, value in args.items()}
    if isinstance(args, tuple):
        return tuple(_guarded_arg(value, words) for value in args)
    return args


def _guarded_arg(value: object, words: set[str]) -> object:
    if isinstance(value, BaseException):
        return describe(value)
    if isinstance(value, str):
        return _without(value, words)
    if isinstance(value, (list, tuple, set, frozenset)) and any(isinstance(one, BaseException) for one in value):
        return [_guarded_arg(one, words) for one in value]
    if words and not isinstance(value, int | float | None):
        printed = _print(value)
        return value if (left := _without(printed, words)) == printed else left
    return value


def _without(text: str, words: set[str]) -> str:
    for word in sorted(words, key=len, reverse=True):
        text = text.replace(word, "…")
        if len(word) > _LONG and word[:_LONG] in text:  # who logs the beginning of a message
            text = text.partition(word[:_LONG])[0] + "…"
    return text


def _words(error: BaseException) -> Iterator[str]:
    """Return what a line may repeat of an exception although `describe` keeps it back: the message, its lines,
    arguments."""
    message = set(_message(error, _name(error)))
    texts = [_print(error), *(arg for arg in error.args if isinstance(arg, str))]
    for text in texts if message else [*texts, repr(texts[0])[1:-1]]:
        yield from (line for line in (text, *text.splitlines()) if len(line) >= _SHORT and line not in message)


def _print(value: object) -> str:
    try:
        return str(value)
    except Exception:  # noqa: BLE001 - the line that mentions what has no text is written all the same
        return ""


def _describe_alone(error: BaseException) -> str:
    name = _name(error)
    words = [*_codes(error), *_message(error, name)]
    return f"{name}: {', '.join(words)}" if words else name


def _name(error: BaseException) -> str:
    return f"{type(error).__module__}.{type(error).__qualname__}".removeprefix("builtins.")


def _codes(error: BaseException) -> Iterator[str]:
    if sqlstate := getattr(error, "sqlstate", None):
        yield str(sqlstate)
        diag = getattr(error, "diag", None)
        yield from (str(name_of) for name in _SCHEMA_NAMES if (name_of := getattr(diag, name, None)))
        return
    ours = getattr(error, "code", None)
    if isinstance(ours, str) and _CODE.fullmatch(ours) and type(error).__module__.startswith(_OURS):
        yield ours
    if not isinstance(error, OSError) or not isinstance(error.errno, int):
        return
    if _name(error).startswith("ssl."):  # its strerror says whom a certificate is for
        yield str(getattr(error, "reason", None))
    else:
        is_of_system = _name(error) == "socket.gaierror" or error.strerror == os.strerror(error.errno)
        yield f"[Errno {error.errno}] {error.strerror if is_of_system else ''}".strip()


def _message(error: BaseException, name: str) -> Iterator[str]:
    # a libpq error without a state never reached a server that could have quoted a statement
    is_of_connection = name == "psycopg.OperationalError" and getattr(error, "sqlstate", None) is None
    if name in _SAY_WHERE or is_of_connection:
        line = _print(error).partition("\n")[0]
        words = _WORDS.match(line) if name.startswith("httpx.") else None
        yield from filter(None, [words[0].strip() if words else line])
    elif error.args and all(isinstance(arg, str) for arg in error.args):
        literals = _literals(error.__traceback__)
        if all(arg in literals for arg in error.args):
            yield " ".join(error.args)


def _literals(trace: TracebackType | None) -> frozenset[str]:
    """The strings that stand in the code of the frames on the way."""
    literals: set[str] = set()
    while trace is not None:
        literals.update(_strings(trace.tb_frame.f_code))
        trace = trace.tb_next
    return frozenset(literals)


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


def _warn(message: Warning | str, category: type[Warning], filename: str, lineno: int, *_: Any, **__: Any) -> None:
    _log.warning("%s at %s:%d", category.__name__, filename, lineno)


def _unprintable(handler: logging.Handler, record: logging.LogRecord) -> None:
    """Stand in the place of logging's own, which prints the arguments of a line that cannot be formatted."""
    error = sys.exc_info()[1]
    if sys.stderr and error:
        sys.stderr.write(f"a line of {record.name} at {record.pathname}:{record.lineno} is lost: {describe(error)}\n")
