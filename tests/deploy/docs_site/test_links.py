"""Links of a page as the site has them, and anchors as GitHub has them."""

import pytest

from deploy.docs_site.links import anchor_of, relink

COPIED = {"../examples/router.yaml": "examples/router.yaml"}


@pytest.mark.parametrize(
    ("page", "markdown", "expected"),
    [
        ("tour.md", "[a](events.md#x)", "[a](events.md#x)"),
        ("tour.md", "[the `file`](../examples/router.yaml)", "[the `file`](examples/router.yaml)"),
        ("how-to/data.md", "[the file](../../examples/router.yaml)", "[the file](../examples/router.yaml)"),
        ("tour.md", "*[the `code`](../backend/x.py)*", "*the `code`*"),
        ("tour.md", "![a picture](screenshots/a.png)", "![a picture](screenshots/a.png)"),
        ("tour.md", "[out](https://a.example/../b)", "[out](https://a.example/../b)"),
        ("tour.md", "```\n[a](../b)\n```\n", "```\n[a](../b)\n```\n"),
    ],
)
def test_a_link_that_leaves_docs_goes_to_the_copy_or_becomes_its_words(page: str, markdown: str, expected: str) -> None:
    assert relink(markdown, page, COPIED.get) == expected


def test_anchors_are_those_of_github() -> None:
    assert [anchor_of(text) for text in ("Keys and limits", "`k_exceeds_n`", "A, b: c?")] == [
        "keys-and-limits",
        "k_exceeds_n",
        "a-b-c",
    ]
