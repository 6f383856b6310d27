"""Nothing here tells anybody to install, by a name like ours, what a stranger may have published (or may publish)."""

import re
import subprocess
import tomllib

import pytest

from deploy.embedded.home import ROOT

NAME = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["name"]
# a command that fetches by name, and the rest of its line (a backslash goes on in the next)
FETCHES = re.compile(
    r"\b(?:pip[\d.]*|pipx|uvx?|poetry|pdm|hatch|rye|pixi|conda|mamba|easy_install|npm|npx|pnpm|yarn|brew)[ \t]+"
    r"(?:(?:pip|tool|run|-\S+)[ \t]+)*(?:install|download|wheel|add|run|inject|i|(?=kolm))(?P<rest>(?:\\\n|[^\n])*)"
)
ENDS = re.compile(r"&&|\|\||[;|`]|(?<!\S)#")  # what stands behind these is no argument any more
REQUIREMENT = re.compile(r"^(kolm(?:[-_.]\w+)*)(?:\[[\w,\s-]*\])?(?:[=<>!~@].*)?$", re.IGNORECASE)
# requirements.txt, a pyproject's lists, a workflow's matrix: a name with a version or an extra
LISTED = re.compile(r"""(?:^|["'\s(])(kolm(?:[-_]\w+)*)(?:\[[a-z, -]+\]|\s*(?:==|>=|~=|<=|!=)\s*\d)""", re.MULTILINE)
OURS = {"pyproject.toml": {NAME}}  # its own extras, which name each other


def told_to_fetch(text: str) -> list[str]:
    """Names like ours that a text says to install from an index; a path or a wheel's file is none."""
    fetched = []
    for match in FETCHES.finditer(text):
        arguments = ENDS.split(match["rest"])[0]
        words = (word.strip("\"'.,:)") for word in arguments.split())
        fetched += [found[1] for word in words if (found := REQUIREMENT.match(word)) and not word.endswith(".whl")]
    return fetched + [match[1] for match in LISTED.finditer(text)]


def test_no_text_here_names_a_distribution_that_is_not_ours() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    wrong = {}
    for name in listed.split("\0"):
        path = ROOT / name
        if not path.is_file() or name == "tests/deploy/test_distribution_name.py":
            continue
        text = path.read_bytes().decode("utf-8", errors="ignore")
        found = set(told_to_fetch(text)) - OURS.get(name, set())
        wrong |= {name: found} if found else {}
    assert wrong == {}


@pytest.mark.parametrize(
    "text",
    [
        "both are in one package, `pip install kolm`, and",
        "        run: pip install kolm\n",
        "pip install 'kolm[runner]'",
        'python -m pip install -U "kolm[web,worker]==0.1.0"',
        "pip3 install --upgrade kolm>=0.1",
        "pip install cryptography \\\n    kolm",
        "pipx install kolm",
        "pipx run kolm verify x",
        "uv tool install kolm",
        "uvx kolm verify x.kolm",
        "uv add kolm-compiler",
        "uv pip install kolm_compiler",
        "poetry add kolm",
        "pixi add kolm",
        "npm i kolm",
        "npx kolm verify x",
        "%pip install kolm",
        "RUN pip install Kolm",
        "needs kolm[gpu] on a GPU box",
        "kolm==0.1.0 \\\n    --hash=sha256:00",
        'dependencies = ["kolm>=0.1"]',
    ],
)
def test_a_name_is_found_however_it_is_told(text: str) -> None:
    assert told_to_fetch(text) != []


@pytest.mark.parametrize(
    "text",
    [
        "pip install ./kolm/kolm_compiler-0.1.0-py3-none-any.whl",
        "pip install 'dist/kolm_compiler-0.1.0-py3-none-any.whl[runner]'",
        "pip install PATH/TO/CLONE",
        "pip install cryptography; then kolm verify x",
        "`pip install cryptography`, and `kolm verify`",
        "kolm[: cut % (len(kolm) + 1)]",
        "kolm[:-1]",
        "pip install -r requirements.lock.txt && kolm check",
    ],
)
def test_a_path_a_file_and_a_command_are_no_names(text: str) -> None:
    assert told_to_fetch(text) == []
