"""`manage.py check --deploy` finds nothing under an https address: 0 warnings, errors or silent surprises."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from deploy.embedded.stack import EmbeddedServices

ROOT = Path(__file__).resolve().parents[2]


def checked(services: EmbeddedServices, **variables: str) -> subprocess.CompletedProcess[str]:
    env = os.environ | services.env | variables
    command = [sys.executable, "manage.py", "check", "--deploy", "--fail-level", "WARNING"]
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=60, check=False)


def test_nothing_is_left_to_warn_of_under_https(embedded_services):
    found = checked(embedded_services, KOLM_PUBLIC_URL="https://kolm.example.com", KOLM_PROXIES="1")
    assert found.returncode == 0, found.stderr
    assert "no issues" in found.stdout


@pytest.mark.nightly
def test_a_public_address_without_tls_is_warned_of(embedded_services):
    """The other way around: the check does look."""
    found = checked(embedded_services, KOLM_PUBLIC_URL="http://kolm.example.com")
    assert found.returncode != 0
    assert "security.W004" in found.stderr
