"""How often a checkpoint is made: never so often that its bytes, making or sending it take more than their share."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.domain.jobs.blob_transfers import (
    BYTES_A_S,
    CHECKPOINT_MARK,
    MADE_SHARE,
    PART_BYTES,
    SENT_SHARE,
    UNKEPT_WHY,
    Unkept,
    Upload,
    pause_s,
)

seconds = st.floats(0, 1e4)


@given(every_s=seconds, n_bytes=st.integers(0, 1 << 34), made_s=seconds, sent_s=seconds)
def test_no_cost_of_a_checkpoint_is_more_than_its_share(every_s, n_bytes, made_s, sent_s):
    pause = pause_s(every_s=every_s, n_bytes=n_bytes, made_s=made_s, sent_s=sent_s)
    assert pause >= every_s
    assert made_s <= MADE_SHARE * pause * (1 + 1e-9)
    assert sent_s <= SENT_SHARE * pause * (1 + 1e-9)
    assert n_bytes <= BYTES_A_S * pause * (1 + 1e-9) + 1
    bounds = (every_s, made_s / MADE_SHARE, sent_s / SENT_SHARE, n_bytes / BYTES_A_S)
    assert pause in bounds, "and it is no longer than one of them asks"


@pytest.mark.parametrize(
    ("n_bytes", "made_s", "sent_s", "expected"),
    [
        (4_000_000, 0.1, 0.1, 20),
        (283_000_000, 0.7, 3, 56.6),
        (1_130_000_000, 3, 10, 226),
        (1_130_000_000, 3, 90, 450),
        (1_130_000_000, 9, 90, 450),
        (1_130_000_000, 12, 90, 600),
    ],
)
def test_the_examples_of_the_documentation(n_bytes, made_s, sent_s, expected):
    assert pause_s(every_s=20, n_bytes=n_bytes, made_s=made_s, sent_s=sent_s) == pytest.approx(expected, rel=0.01)


@given(n_bytes=st.integers(1, 1 << 32))
def test_the_parts_of_an_upload_are_the_whole(n_bytes):
    upload = Upload(owner="x", sha256="0" * 64, n_bytes=n_bytes)
    last = upload.n_parts - 1
    assert last * PART_BYTES + upload.part_bytes(last) == n_bytes
    assert 0 < upload.part_bytes(last) <= PART_BYTES
    assert upload.part_bytes(last + 1) == upload.part_bytes(-1) == 0
    assert upload.n_whole_parts(n_bytes) == upload.n_parts
    assert upload.n_whole_parts(n_bytes - 1) == (n_bytes - 1) // PART_BYTES


def test_every_reason_has_its_words():
    assert set(UNKEPT_WHY) == set(Unkept)


def test_the_mark_is_how_the_header_begins():
    assert CHECKPOINT_MARK.startswith(b'{"__metadata__":')
