"""A home for a stack: short and private, and empty of processes afterwards."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.embedded.home import ROOT, Home
from deploy.embedded.stack import end_leftovers


@pytest.fixture
def home() -> Iterator[Home]:
    path = Path(tempfile.mkdtemp(prefix="kolm-test-"))
    yield Home(path=path)
    end_leftovers(Home(path=path))
    shutil.rmtree(path)


def bare_environ() -> dict[str, str]:
    """This process's environment without the addresses of the servers that the test run itself uses."""
    outside = ("DATABASE_URL", "DATABASE_OWNER_URL", "REDIS_URL", "KOLM_GRAMMAR_URL", "KOLM_PUBLIC_URL", "KOLM_PORT")
    return {name: value for name, value in os.environ.items() if name not in outside}


def embedded(home: Home, *arguments: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    """`python -m deploy.embedded ARGUMENTS` as a person types it: no address from outside in the environment."""
    command = [sys.executable, "-m", "deploy.embedded", *arguments]
    return subprocess.run(
        command,
        cwd=ROOT,
        env=bare_environ() | {"KOLM_HOME": str(home.path)} | variables,
        capture_output=True,
        text=True,
        timeout=60,
    )
