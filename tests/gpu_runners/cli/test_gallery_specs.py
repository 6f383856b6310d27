"""`kolm check` of every example that the console offers."""

import pytest

from deploy.embedded.home import ROOT
from gpu_runners.cli.main import main


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_example_is_a_spec_without_a_fault(path, capsys):
    assert main(["check", str(path)]) == 0, capsys.readouterr()
