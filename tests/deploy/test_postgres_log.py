"""Postgres' log holds no customer's text: a canary goes through every fault that Postgres logs."""

import os
import signal
import threading
import time

import psycopg
import pytest

from deploy.embedded.stack import EmbeddedServices
from tests.deploy.conftest import bare_environ

CANARY = "CANARYTEXTOFATENANT"
FAULTS = [
    f"INSERT INTO t VALUES (1, '{CANARY}')",  # unique: DETAIL names the key
    f"INSERT INTO t VALUES (9, '{CANARY} too long')",  # check: DETAIL prints the row
    f"INSERT INTO t VALUES (NULL, '{CANARY}')",
    f"DO $$ BEGIN RAISE EXCEPTION 'x' USING DETAIL = '{CANARY}'; END $$",
    f"SET statement_timeout = 50; SELECT pg_sleep(5), '{CANARY}'",
    f"SELECT '{CANARY}' FROM nowhere",
]


def test_no_fault_writes_a_text_into_the_log() -> None:
    with EmbeddedServices(services=("postgres",), variables=bare_environ()) as services:
        url = services.env["DATABASE_OWNER_URL"]
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("CREATE TABLE t (id int NOT NULL, x text UNIQUE CHECK (length(x) < 20))")
            connection.execute("INSERT INTO t VALUES (1, %s), (2, 'b')", [CANARY])
            for statement in FAULTS:
                with pytest.raises(psycopg.Error):
                    connection.execute(statement)
                connection.execute("RESET statement_timeout")
            with pytest.raises(psycopg.Error):
                connection.execute("SELECT length(%s) / (%s::int - 1)", [CANARY, 1])
            with pytest.raises(psycopg.Error), connection.cursor().copy("COPY t FROM STDIN") as copy:
                copy.write(f"{CANARY}\t{CANARY}\n")  # CONTEXT prints the line
        deadlock(url)
        kill_a_backend(url)
        log = services.home.log("postgres").read_text(errors="replace")
    assert "was terminated by signal 9" in log
    assert CANARY not in log


def deadlock(url: str) -> None:
    """Both processes' statements are in its DETAIL."""
    gate = threading.Barrier(2)

    def cross(first: int, second: int) -> None:
        try:
            with psycopg.connect(url) as connection:
                connection.execute("UPDATE t SET id = id WHERE id = %s", [first])
                gate.wait(30)
                connection.execute(f"UPDATE t SET id = id WHERE id = {second} AND x <> '{CANARY}no'")
        except psycopg.errors.DeadlockDetected:
            pass

    threads = [threading.Thread(target=cross, args=pair) for pair in ((1, 2), (2, 1))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)


def kill_a_backend(url: str) -> None:
    """The server names the statement of a process that died."""
    connection = psycopg.connect(url, autocommit=True)
    pid = connection.info.backend_pid

    def wait_in_it() -> None:
        with pytest.raises(psycopg.Error):
            connection.execute(f"SELECT pg_sleep(60), '{CANARY}'")

    thread = threading.Thread(target=wait_in_it)
    thread.start()
    time.sleep(1.0)
    os.kill(pid, signal.SIGKILL)
    thread.join(30)
    connection.close()
    time.sleep(1.0)
