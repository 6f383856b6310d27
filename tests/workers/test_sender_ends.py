"""The sender of webhooks ends by a fault of its loop, so that it is started again."""

import os
import subprocess
import sys

import pytest

from deploy.embedded.home import ROOT

BROKEN = """
from workers import deliveries
def no_thread(*_):
    raise RuntimeError("can't start new thread")
deliveries.Sender._take = no_thread
deliveries.main()
"""


@pytest.mark.nightly
def test_a_fault_in_its_loop_ends_the_process() -> None:
    """Before, its listening thread kept it: it sent nothing until ten minutes without a turn made it silent."""
    done = subprocess.run([sys.executable, "-c", BROKEN], cwd=ROOT, env=os.environ, capture_output=True, timeout=90)
    assert done.returncode == 1
    assert b"RuntimeError" in done.stderr
