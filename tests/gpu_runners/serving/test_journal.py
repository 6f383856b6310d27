"""The usage journal: nothing is lost by a death, nothing is told twice under another key."""

import errno
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from gpu_runners.models.protocol import Counts
from gpu_runners.serving.journal import CannotJournal, Journal, JournalBusy

MODEL = "ab" * 32


def counts(n: int) -> Counts:
    return Counts(prompt_tokens=7, completion_tokens=n, drafted_tokens=2 * n, accepted_tokens=n // 2)


def again(journal: Journal, folder: Path) -> Journal:
    """After a death: nothing was told to the journal."""
    journal.close()
    return Journal(folder)


def test_a_request_that_ended_is_told_until_it_is_booked(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    number = journal.begin("grant-1", model=MODEL, expires_at=10)
    journal.note(number, counts(3))
    journal.end(number, reason="stop", first_token_us=5, total_us=9)
    for _ in range(2):
        journal = again(journal, tmp_path)
        ((number, row),) = journal.next_unbooked(10)
        assert (row.completion_tokens, row.drafted_tokens, row.finish_reason, row.total_us) == (3, 6, "stop", 9)
    journal.drop_booked([number], now=0)
    assert again(journal, tmp_path).next_unbooked(10) == []


def test_a_request_that_was_running_at_the_death_failed_with_what_was_noted(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    number = journal.begin("grant-1", model=MODEL, expires_at=10)
    for n in range(1, 6):
        journal.note(number, counts(n))
    ((_, row),) = again(journal, tmp_path).next_unbooked(10)
    assert (row.finish_reason, row.completion_tokens, row.prompt_tokens) == ("failed", 5, 7)


def test_parts_of_one_grant_go_on_after_a_death_even_when_all_is_booked(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    keys = set()
    for _ in range(3):
        number = journal.begin("grant-1", model=MODEL, expires_at=10)
        journal.end(number, reason="stop", first_token_us=0, total_us=0)
        ((_, row),) = journal.next_unbooked(10)
        keys.add(row.key)
        journal.drop_booked([number], now=0)
        journal = again(journal, tmp_path)
    assert len(keys) == 3


def test_half_a_line_is_left_out_and_everything_before_it_kept(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    number = journal.begin("grant-1", model=MODEL, expires_at=10)
    journal.note(number, counts(4))
    with (tmp_path / "usage.journal").open("ab") as file:
        file.write(b"n 1 7 0 99")
    ((_, row),) = again(journal, tmp_path).next_unbooked(10)
    assert row.completion_tokens == 4


def test_the_file_stays_small_while_requests_come_and_go(tmp_path: Path) -> None:
    journal = Journal(tmp_path, max_bytes=20_000)
    for i in range(300):
        number = journal.begin(f"grant-{i:04d}" * 20, model=MODEL, expires_at=i)
        for n in range(1, 20):
            journal.note(number, counts(n))
        journal.end(number, reason="stop", first_token_us=0, total_us=0)
        journal.drop_booked([number], now=i)
        assert (tmp_path / "usage.journal").stat().st_size <= 20_000
    assert not journal.is_full


def test_a_full_journal_takes_no_new_work_until_something_is_booked(tmp_path: Path) -> None:
    journal = Journal(tmp_path, max_bytes=20_000)
    numbers: list[int] = []

    def fill() -> None:
        for i in range(1000):
            number = journal.begin(f"grant-{i:04d}" * 20, model=MODEL, expires_at=0)
            numbers.append(number)
            journal.end(number, reason="stop", first_token_us=0, total_us=0)

    with pytest.raises(CannotJournal):
        fill()
    assert journal.is_full
    assert len(journal.next_unbooked(1000)) == len(numbers)
    journal.drop_booked(numbers, now=1)
    journal.begin("one more", model=MODEL, expires_at=0)


def test_a_full_disk_is_told_and_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal(tmp_path)
    number = journal.begin("grant-1", model=MODEL, expires_at=10)
    journal.note(number, counts(2))

    def no_space(fd: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "no space")

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", no_space)
        with pytest.raises(CannotJournal):
            journal.note(number, counts(3))
        journal.end(number, reason="stop", first_token_us=0, total_us=0)
        with pytest.raises(CannotJournal):
            journal.begin("grant-2", model=MODEL, expires_at=10)
    ((_, row),) = journal.next_unbooked(10)
    assert row.completion_tokens == 3
    journal.drop_booked([number], now=0)
    journal.begin("grant-2", model=MODEL, expires_at=10)


def test_two_servers_do_not_share_a_journal(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    with pytest.raises(JournalBusy, match="its own folder"):
        Journal(tmp_path)
    journal.close()
    Journal(tmp_path).close()


def test_what_was_printed_before_a_kill_9_is_in_the_journal(tmp_path: Path) -> None:
    """A process that notes and then prints, killed in mid-sentence by itself."""
    script = textwrap.dedent(
        """
        import os, signal, sys
        from pathlib import Path
        from gpu_runners.models.protocol import Counts
        from gpu_runners.serving.journal import Journal
        journal = Journal(Path(sys.argv[1]))
        numbers = [journal.begin(f"grant-{i}", model="m", expires_at=10) for i in range(3)]
        for n in range(1, 1000):
            for number in numbers:
                journal.note(number, Counts(prompt_tokens=1, completion_tokens=n))
                os.write(1, b"%d %d\\n" % (number, n))
            if n == 700:
                os.kill(os.getpid(), signal.SIGKILL)
        """
    )
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True)
    received = dict(tuple(map(int, line.split())) for line in done.stdout.splitlines())
    journaled = {number: row.completion_tokens for number, row in Journal(tmp_path).next_unbooked(10)}
    assert journaled == received == dict.fromkeys(received, 700)
