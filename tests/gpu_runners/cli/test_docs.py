"""docs/client.md, docs/ci.md, docs/tour.md and docs/first-compile.md beside what is really there."""

import inspect
import re
import shlex
from pathlib import Path

import pytest

from gpu_runners import kolm
from gpu_runners.cli import exit_codes
from tests.gpu_runners.cli.command_reference import PAGE, page_with_commands, parsed

DOCS = PAGE.parent


def test_the_command_reference_is_the_commands_own() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert page_with_commands(text) == text, "write it anew: python -m tests.gpu_runners.cli.command_reference"


def test_the_exit_codes_are_all_in_the_table() -> None:
    told = {int(code) for code in re.findall(r"^\| (\d+) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)}
    assert told == {value for name, value in vars(exit_codes).items() if name.isupper() and isinstance(value, int)}


def test_the_table_of_resources_is_the_clients() -> None:
    told = dict(re.findall(r"^\| `client\.(\w+)` \| `([\w ]+)` \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
    with kolm.Client("k", "http://127.0.0.1:9") as client:
        resources = {name: value for name, value in vars(client).items() if hasattr(value, "_get")}
        for name, value in resources.items():
            methods = {each for each, _ in inspect.getmembers(value, inspect.ismethod) if not each.startswith("_")}
            assert set(told[name].split()) == methods, name
        assert set(told) == set(resources)


@pytest.mark.parametrize("page", ["client.md", "ci.md", "tour.md", "first-compile.md"])
def test_every_command_on_a_page_is_one_that_there_is(page: str) -> None:
    lines = re.findall(
        r"^ {4}(?:\$ )?(?:\.venv/bin/)?kolm (.+)$", (DOCS / page).read_text(encoding="utf-8"), re.MULTILINE
    )
    assert lines
    for line in lines:
        words = shlex.split(re.split(r"\s[|>]\s|\s&&\s", line)[0], comments=True)
        parsed([word if word != "$ID" else "cmp_x" for word in words])


def test_the_pictures_and_pages_that_the_tour_names_are_in_the_tree() -> None:
    text = (DOCS / "tour.md").read_text(encoding="utf-8")
    pictures = set(re.findall(r"\]\(screenshots/([\w-]+\.png)\)", text))
    assert len(pictures) >= 6
    for picture in pictures:
        assert (DOCS / "screenshots" / picture).is_file(), picture
    for target in re.findall(r"\]\(([\w./-]+\.md)\)", text):
        assert (DOCS / target).exists() or Path(target).name == "webhooks.md", target


@pytest.mark.parametrize(
    ("encoding", "delimiter", "settings"),
    [("utf-8-sig", ",", ""), ("cp1252", ";", 'ENCODING, DELIMITER = "cp1252", ";"')],
    ids=["with a byte order mark", "of an older Excel"],
)
def test_the_first_script_reads_a_table_as_a_spreadsheet_writes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encoding: str, delimiter: str, settings: str
) -> None:
    lines = [["message", "intent"], ["où est mon argent ?", "Refund "], [" where is it", "refund"], ["", ""], ["?", ""]]
    (tmp_path / "tickets.csv").write_text("".join(delimiter.join(line) + "\r\n" for line in lines), encoding=encoding)
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / "first-compile.md").read_text(encoding="utf-8"), re.DOTALL)
    script = re.sub(r"^ENCODING, DELIMITER = .*$", lambda line: settings or line[0], blocks[0], flags=re.MULTILINE)
    names: dict[str, object] = {}
    exec(compile(script.replace("import kolm\n", ""), "first-compile.md", "exec"), names)
    assert names["rows"] == [
        {"input": "où est mon argent ?", "output": "Refund"},
        {"input": "where is it", "output": "Refund"},
    ]
