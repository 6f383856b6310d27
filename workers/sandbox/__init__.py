"""Runs customers' python checks (`def check(input, output)`) where they can compute and do nothing else.

What protects what is in docs/checks.md; escaping is a security bug.
"""

from workers.sandbox.checks import protections, run_checks
from workers.sandbox.limits import CheckFault, Limits, SandboxUnavailable

__all__ = ["CheckFault", "Limits", "SandboxUnavailable", "protections", "run_checks"]
