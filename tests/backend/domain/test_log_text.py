"""What a process logs of an exception holds no word from outside; each run is a process of its own, as it is guarded
once for all."""

import subprocess
import sys

import psycopg
import pytest
from django.db import DataError, IntegrityError, connection, transaction

from backend.domain.errors import InvalidInput
from backend.domain.log_text import describe, describe_with_places

CANARY = "CANARYTEXTOFATENANT"
START = """
import asyncio, json, logging, os, sys, threading, warnings
logging.basicConfig(format="%(levelname)s %(name)s %(message)s")
from backend.domain.log_text import guard_logs
guard_logs(); guard_logs()
log = logging.getLogger("x")
canary = "".join(["CANARY", "TEXTOFATENANT"])
"""
WAYS = {
    "exception": "try: {}[canary]\nexcept KeyError: log.exception('no row')",
    "exc_info": "log.error('no row', exc_info=ValueError(canary))",
    "an argument": "log.warning('no row: %s', ValueError(canary))",
    "an argument by name": "log.warning('no row: %(e)s', {'e': ValueError(canary)})",
    "the message": "log.warning(ValueError(canary)); print('no row', file=sys.stderr)",
    "a cause": "try:\n try: int(canary)\n except ValueError as e: raise RuntimeError(f'{canary}!') from e\n"
    "except RuntimeError: log.exception('no row')",
    "a context": "try:\n try: int(canary)\n except ValueError: {}[canary]\nexcept KeyError: log.exception('no row')",
    "a group": "log.error('no row', exc_info=ExceptionGroup(canary, [ValueError(canary)]))",
    "a note": "e = ValueError(); e.add_note(canary); log.error('no row', exc_info=e)",
    "a parser": "try: json.loads('{' + canary)\nexcept ValueError: log.exception('no row')",
    "a file": "try: open('/nowhere/' + canary)\nexcept OSError: log.exception('no row')",
    "its own handler": "own = logging.getLogger('own'); own.propagate = False; h = logging.StreamHandler()\n"
    "h.setFormatter(logging.Formatter('no row %(message)s')); own.addHandler(h)\n"
    "own.error('a', exc_info=ValueError(canary))",
    "celery": "c = {'name': 't', 'exc': repr(ValueError(canary)), 'args': f'({canary!r},)', 'kwargs': '{}'}\n"
    "logging.getLogger('celery.app.trace').error('no row %(name)s %(exc)s %(args)s', c, exc_info=ValueError(canary))",
    "asyncio": "async def f(): raise ValueError(canary)\n"
    "async def g():\n asyncio.ensure_future(f()); await asyncio.sleep(0.01)\n"
    "asyncio.run(g()); import gc; gc.collect(); print('no row', file=sys.stderr)",
    "a thread": "t = threading.Thread(target=lambda: {}[canary], name='no row'); t.start(); t.join()",
    "a finalizer": "class A:\n def __del__(self): raise ValueError(canary)\nA(); print('no row', file=sys.stderr)",
    "a warning": "warnings.warn(canary); print('no row', file=sys.stderr)",
    "a line that cannot be formatted": "log.error('no row'); log.error('%d', canary)",
    "a list": "log.error('no row %s', [ValueError(canary)])",
    "its text": "try: int(canary)\nexcept ValueError as e: log.error(f'no row: {e}')",
    "its text as an argument": "e = ValueError(canary, 1); log.error('no row %s %r', str(e), repr(e), exc_info=e)",
    "its text across lines": "try: int(canary + chr(10))\nexcept ValueError as e: log.error(f'no row: {e!r} {e}')",
    "its text in a list": "try: int(canary)\nexcept ValueError as e: log.error('no row %s', [str(e)])",
    "its text in bytes": "try: int(canary)\nexcept ValueError as e: log.error('no row %s', str(e).encode())",
    "its text's beginning": "try: int(canary)\nexcept ValueError as e: log.error('no row %s', str(e)[:60])",
    "a value that prints it": "class A:\n def __init__(self, e): self.e = e\n def __repr__(self): return repr(self.e)\n"
    "try: int(canary)\nexcept ValueError as e: log.error('no row %s', A(e))",
    "one that has no text": "class E(Exception):\n def __str__(self): raise ValueError(canary)\n"
    "try: raise E(canary)\nexcept E as e: log.error('no row', exc_info=True)",
    "a callback": "async def g():\n asyncio.get_running_loop().call_soon(int, canary); await asyncio.sleep(0.01)\n"
    "asyncio.run(g()); print('no row', file=sys.stderr)",
    "a certificate": "import ssl\n"
    "e = ssl.SSLCertVerificationError(1, f'certificate is not valid for {canary!r}'); log.error('no row', exc_info=e)",
    "a certificate of httpx": "import httpx\n"
    "e = httpx.ConnectError(f'[SSL: BAD] verify failed: not valid for {canary!r}'); log.error('no row', exc_info=e)",
    "a fault of the system": "log.error('no row', exc_info=OSError(5, canary))",
    "a code of others": "class E(Exception): code = canary.lower()\nE.__module__ = 'stripe'\n"
    "log.error('no row', exc_info=E())",
    "granian": "logging.getLogger('_granian').error('no row' + chr(10) + 'Traceback' + chr(10) + canary)",
    "nobody": "print('no row', file=sys.stderr); raise ValueError(canary)",
}


@pytest.mark.parametrize("way", WAYS)
def test_no_way_into_the_log_carries_a_text(way: str) -> None:
    done = subprocess.run([sys.executable, "-c", START + WAYS[way]], capture_output=True, text=True, timeout=60)
    said = done.stdout + done.stderr
    assert "no row" in said
    assert CANARY.lower() not in said.lower()


def test_the_same_process_without_the_guard_says_it() -> None:
    code = (START + WAYS["exception"]).replace("guard_logs(); guard_logs()", "")
    assert CANARY in subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60).stderr


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("statement", "kind", "words"),
    [
        ("SELECT '{0}'::text::int", DataError, "22P02"),
        (
            "DO $$ BEGIN RAISE EXCEPTION '{0}' USING ERRCODE = '23514', CONSTRAINT = 'short', TABLE = 't',"
            " DETAIL = '{0}', HINT = '{0}'; END $$",
            IntegrityError,
            "23514, short, t",
        ),
    ],
)
def test_a_database_error_is_told_by_its_state_and_constraint(
    statement: str, kind: type[Exception], words: str
) -> None:
    with pytest.raises(kind) as caught, transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement.format(CANARY))
    assert CANARY in str(caught.value)
    assert CANARY not in describe_with_places(caught.value)
    assert words in describe(caught.value)
    assert "test_log_text.py" in describe_with_places(caught.value)


def test_what_the_code_says_itself_is_kept() -> None:
    def broken() -> None:
        raise RuntimeError("the queue is full")

    with pytest.raises(RuntimeError) as caught:
        broken()
    assert describe(caught.value) == "RuntimeError: the queue is full"
    assert "invalid_spec" in describe(InvalidInput(f"no label {CANARY}", code="invalid_spec"))
    with pytest.raises(KeyError) as missing:
        _ = {"a": 1}["name"]
    assert describe(missing.value) == "KeyError: name"


def test_a_database_that_is_away_is_named() -> None:
    with pytest.raises(psycopg.OperationalError) as caught:
        psycopg.connect("postgresql://nobody@127.0.0.1:9/nothing", connect_timeout=2)
    assert "127.0.0.1" in describe(caught.value)


def test_what_is_left_of_a_line_says_what_and_where() -> None:
    ways = ["a warning", "a line that cannot be formatted", "a callback", "a certificate of httpx"]
    ways += ["a fault of the system"]
    code = START + "\n".join(WAYS[way] for way in ways)
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60).stderr
    for words in (
        "UserWarning at <string>:",
        "a line of x at <string>:",
        "is lost: TypeError",
        "Exception in callback int",
        "httpx.ConnectError: [SSL: BAD] verify failed",
        "OSError: [Errno 5]",
    ):
        assert words in said
