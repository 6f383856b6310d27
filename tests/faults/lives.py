"""Walks one compile to its end in many short lives: each is a fork that claims it and is killed with SIGKILL right
before or right after one of its SQL statements, drawn at random.

`python -m tests.faults.lives COMPILE SEED`, as a process of the deployment, with nobody else working. Between two lives
the lease is let run out by hand, so that a death costs milliseconds. Prints how many lives it took and, a word each, at
which statements they ended.
"""

import os
import random
import signal
import sys
import time
from collections.abc import Callable
from typing import Any
from uuid import UUID

import django

# a step's longest transaction has about 60 statements: some lives must get past it, or the walk goes nowhere
LONGEST_LIFE, LAST_CLAIMS = 70, 10
DEADLINE_S = 200.0


def main(compile: UUID, seed: int) -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "backend.settings")
    django.setup()
    from workers.embedding.sentence import load_embedder
    from workers.pipeline import advance

    load_embedder()  # once, for all lives
    rng = random.Random(seed)
    n_lives, ends, deadline = 0, [], time.monotonic() + DEADLINE_S
    while (claims := _claims_when_due(compile)) is not None:
        assert time.monotonic() < deadline, f"not done after {n_lives} lives"
        # a compile that kills a dozen workers in a row is given up, as it should be; this one is not to blame
        at = None if claims >= LAST_CLAIMS else (rng.randint(1, LONGEST_LIFE), rng.random() < 0.5)
        ends.append(_live(lambda: advance(compile), at))
        n_lives += 1
    print(n_lives, *ends)


def _claims_when_due(compile: UUID) -> int | None:
    """Waits until the compile is due (a runner may be at work); claims so far, or None once it has ended."""
    from django.db import connection

    until = time.monotonic() + 60
    try:
        while time.monotonic() < until:
            with connection.cursor() as cursor:
                cursor.execute(
                    "UPDATE compiles_compilelease SET lease_until = now() - interval '1 second'"
                    " WHERE compile_id = %s AND lease_until IS NOT NULL",
                    [compile],
                )
                query = "SELECT due_at, due_at <= now(), attempts FROM compiles_compilelease WHERE compile_id = %s"
                cursor.execute(query, [compile])
                due_at, is_due, attempts = cursor.fetchone()
            if due_at is None:
                return None
            if is_due:
                return int(attempts)
            time.sleep(0.02)
    finally:
        connection.close()  # a fork must not share it
    raise AssertionError("the compile was not due for a minute")


def _live(work: Callable[[], None], at: tuple[int, bool] | None) -> str:
    """One life in a fork; where it ended."""
    child = os.fork()
    if child == 0:
        _one_life(work, at)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert at is not None
        assert os.WTERMSIG(status) == signal.SIGKILL, status
        return f"{'after' if at[1] else 'before'}-{at[0]}"
    assert os.WEXITSTATUS(status) == 0, status
    return "lived"


def _one_life(work: Callable[[], None], at: tuple[int, bool] | None) -> None:
    from django.db import connection

    n = 0
    last, is_after = at or (0, False)

    def mortal(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
        nonlocal n
        n += 1
        if n == last and not is_after:
            os.kill(os.getpid(), signal.SIGKILL)
        result = execute(sql, params, many, context)
        if n == last:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    status = 1
    try:
        with connection.execute_wrapper(mortal):
            work()
        status = 0
    finally:
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    main(UUID(sys.argv[1]), int(sys.argv[2]))
