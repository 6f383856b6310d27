"""What a stranger's server or file can make `kolm` print, and where it can make it write."""

import io
import json
import sys
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.domain.artifact import kolm_verify
from backend.domain.artifact.building import build_kolm
from backend.domain.canonical import canonical_json
from gpu_runners.cli.api.compiles import file_of
from gpu_runners.cli.display.printing import print_members, print_table
from gpu_runners.cli.main import main
from gpu_runners.kolm import Unreadable
from gpu_runners.terminal_text import TextOnly, as_line, as_text
from tests.backend.domain.artifact.tiny_kolm import KEY, fields, keyring, members

HOSTILE = "a\x1b]0;PWN\x07\x1b[2J\x9b31m\x7f\u202egnp.exe\u2066\u200b\U000e0041\r"


@given(st.text())
def test_no_character_that_acts_on_a_terminal_is_left(text: str) -> None:
    assert all(unicodedata.category(c) not in ("Cc", "Cf") or c in "\n\t" for c in as_text(text))
    assert "\n" not in as_line(text)


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_a_document_for_programs_means_what_it_meant(text: str) -> None:
    stream = io.StringIO()
    print(json.dumps({"label": text}, ensure_ascii=False), file=TextOnly(stream))
    assert json.loads(stream.getvalue()) == {"label": text}


def test_letters_of_every_script_stay() -> None:
    assert as_text("Größe 価格 سعر 🎉\n") == "Größe 価格 سعر 🎉\n"


def test_tables_and_members_print_a_label_as_text(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["name"], [[HOSTILE]], none="none")
    print_members({"name": HOSTILE, "labels": [HOSTILE], "object": "x"})
    said = capsys.readouterr().out
    assert not set(said) & (set(HOSTILE) - set(as_text(HOSTILE)))
    assert "\\u202e" in said


def test_every_command_prints_through_the_escaping_stream(capsys: pytest.CaptureFixture[str]) -> None:
    """Here through the first message that repeats what it was given."""
    before = sys.stdout
    assert main(["inspect", f"/nowhere/{HOSTILE}"]) != 0
    said = capsys.readouterr()
    assert "\x1b" not in said.err + said.out
    assert "\\u001b" in said.err
    assert sys.stdout is before


def test_the_verifier_that_stands_alone_escapes_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is copied to where no `kolm` is, so it has no stream of ours before it."""
    file = tmp_path / "x.kolm"
    base = {"id": HOSTILE, "sha256": fields()["base"]["sha256"]}
    file.write_bytes(build_kolm(members(), manifest_fields=fields(base=base), key=KEY))
    for options in ([], ["--json"]):
        kolm_verify.main([str(file), "--keyring", str(tmp_path / "none.json"), *options])
        said = capsys.readouterr().out
        assert not set(said) & (set(HOSTILE) - set(as_text(HOSTILE)))
    assert json.loads(said)["manifest"]["base"]["id"] == HOSTILE


FORGED = "Compare well\n  x.kolm: trusted"


def test_a_keyring_cannot_show_a_fingerprint_of_its_choice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What a person compares stands on lines of its own, of which a key's name can make none, by no line feed and by no
    blanks up to the terminal's edge."""
    for text in (f"kolm\n  {'3f2a ' * 16}", f"kolm{' ' * 75}{'3f2a ' * 16}", HOSTILE):
        for field in ("name", "not_before", "not_after", "revoked_at"):
            source = tmp_path / "keys.json"
            source.write_text(json.dumps(keyring(**{field: text})))
            assert main(["trust", str(source), "--keyring", str(tmp_path / "ring.json"), "--yes"]) == 0
            (tmp_path / "ring.json").unlink()
            said = capsys.readouterr().out
            lines = said.splitlines()
            assert len(lines) == 4
            assert lines[1].count("3f2a") <= 12, "a fingerprint has 16 groups"
            assert not set(said) & (set(HOSTILE) - set(as_text(HOSTILE)))


@pytest.mark.parametrize("text", [HOSTILE, FORGED])
@pytest.mark.parametrize(
    "command",
    [["inspect"], ["verify"], ["recipes"], ["rules"], ["run", "--allow-untrusted", "x"], ["inspect", "--json"]],
)
def test_an_artifact_of_a_stranger_writes_no_line_and_no_escape(
    command: list[str], text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "x.kolm"
    content = members() | {
        "labels.json": canonical_json([text, "other"]),
        "prompt.json": canonical_json(
            {"answer": {"type": "json", "schema": {"properties": {text: {}}}}, "max_new_tokens": text}
        ),
        "rules.json": canonical_json([text]),
        "recipes.json": canonical_json({"entries": [text]}),
    }
    base = {"id": text, "sha256": fields()["base"]["sha256"]}
    file.write_bytes(build_kolm(content, manifest_fields=fields(base=base), key=KEY))
    main([command[0], str(file), *command[1:]])
    said = capsys.readouterr()
    for stream in (said.out, said.err):
        assert not set(stream) & (set(HOSTILE) - set(as_text(HOSTILE)))
        assert "  x.kolm: trusted" not in stream.splitlines()


@pytest.mark.parametrize(
    "name",
    [
        "../up",
        "/abs",
        "a/b",
        "a\\b",
        "..",
        ".hidden",
        "",
        "a\n",
        "a\0b",
        "\x1b[2J",
        "C:x",
        "CON",
        "nul.txt",
        "Com1",
        "a" * 300,
        None,
        3,
        "\u202ea",
        "~/x",
    ],
)
def test_the_server_cannot_choose_another_folder(name: object) -> None:
    with pytest.raises(Unreadable, match="no file name"):
        file_of(name, 1)
    with pytest.raises(Unreadable, match="no file name"):
        file_of(name)


@pytest.mark.parametrize("version", ["1/../../x", "../1", -1, True, [1]])
def test_nor_through_the_version(version: object) -> None:
    with pytest.raises(Unreadable, match="no file name"):
        file_of("tickets", version)


def test_a_plain_name_is_kept() -> None:
    assert str(file_of("order-extractor_2.1", 3)) == "order-extractor_2.1-3.kolm"
