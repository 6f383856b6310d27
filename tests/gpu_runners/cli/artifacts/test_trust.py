"""`kolm trust`: keys are pinned on purpose, and a revocation stays."""

import json
from pathlib import Path

import pytest

from gpu_runners.cli.main import main
from tests.backend.domain.artifact.tiny_kolm import keyring, small_kolm
from tests.gpu_runners.cli.api.small_api import SmallApi


def test_trust_shows_fingerprints_and_pins_only_when_told_to(
    home: Path, api: SmallApi, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "keyring.json").unlink()
    (home / "a.kolm").write_bytes(small_kolm())
    api.keys = keyring()
    assert main(["trust", api.url]) == 1
    assert not (home / "keyring.json").exists()
    assert main(["trust", api.url, "--yes"]) == 0
    assert api.keys["keys"][0]["keyid"][:4] + " " in capsys.readouterr().out
    assert main(["verify", "a.kolm"]) == 0


def test_a_pinned_revocation_is_never_taken_back(home: Path, api: SmallApi) -> None:
    (home / "a.kolm").write_bytes(small_kolm())
    (home / "new.json").write_text(json.dumps(keyring(revoked_at="2026-11-21T07:00:00Z")))
    assert main(["trust", "new.json", "--yes"]) == 0
    api.keys = keyring()
    assert main(["trust", api.url, "--yes"]) == 0
    assert main(["verify", "a.kolm"]) == 3


@pytest.mark.parametrize("document", [b"{}", b"[1]", b'{"keys": [{}]}', b"<html>"])
def test_trust_refuses_what_is_no_keyring(home: Path, document: bytes) -> None:
    (home / "x.json").write_bytes(document)
    before = (home / "keyring.json").read_bytes()
    assert main(["trust", "x.json", "--yes"]) == 1
    assert (home / "keyring.json").read_bytes() == before
