"""The map of a selection: what is drawn, that hostile texts stay text, and that the file is what it says."""

import re
import xml.etree.ElementTree as ET
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_runners.selecting import map as selection_map
from gpu_runners.selecting.map import BOTTOM, LEFT, NOTE_Y, RIGHT, WIDTH, Fate, Mapped, picture_of
from gpu_runners.selecting.principal_plane import principal_plane
from gpu_runners.selecting.svg import PALETTE, svg_of

SVG = "{http://www.w3.org/2000/svg}"


def mapped(n: int = 30, *, seed: int = 1, **changes: Any) -> Mapped:
    """A third kept, a third dropped, a third below the floor."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n, 16))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    fields = {
        "rows": rows,
        "picks": list(range(n // 3)),
        "below_floor": list(range(n - n // 3, n)),
        "clusters": [i % max(1, n // 3) if i < n - n // 3 else -1 for i in range(n)],
        "labels": None,
        "scores": rng.random(n).tolist(),
        "ids": [f"r{i}" for i in range(n)],
        "texts": [f"text {i}" for i in range(n)],
        "method": "two_step",
        "k": n // 3,
    }
    return Mapped(**(fields | changes))  # type: ignore[arg-type]


def test_every_row_is_one_mark_of_its_fate() -> None:
    root = ET.fromstring(svg_of(picture_of(mapped(31))))
    groups = {group.get("id"): group for group in root.iter(f"{SVG}g")}
    kept, dropped, floor = (groups[name] for name in ("kept", "dropped", "floor"))
    assert [len(group) for group in (kept, dropped, floor)] == [10, 11, 10]
    assert {mark.get("class") for mark in kept} == {"disc kept"}
    assert {mark.get("class") for mark in dropped} == {"ring dropped"}
    assert {mark.get("class") for mark in floor} == {"cross floor"}
    assert root.findtext(f"{SVG}title") == "10 of 31 rows kept (K = 10, two_step)"
    tips = [mark.findtext(f"{SVG}title") for mark in kept]
    assert all(re.fullmatch(rf"r{i} \(kept, score 0\.\d+\)\ntext {i}", tip or "") for i, tip in enumerate(tips))


def test_the_legend_counts_the_marks_and_the_note_names_the_variance() -> None:
    rows = np.zeros((9, 4))
    rows[:, 0], rows[:, 1] = [-3, 3, -3, 3, 0, 0, 0, 0, 0], [0, 0, 0, 0, 1, -1, 1, -1, 0]  # variances 36 and 4
    words = [words.text for words in picture_of(mapped(9, rows=rows)).words]
    assert words[:3] == ["kept: 3", "dropped: 3", "below the score floor: 3"]
    assert "first two principal components: 90.0 % and 10.0 % of the variance" in words


def test_marks_lie_in_the_plot_and_words_outside_of_it() -> None:
    for n in (1, 2, 30, 240, 6_000):
        picture = picture_of(mapped(n))
        for layer in picture.layers:
            assert (layer.x - layer.radius >= LEFT).all()
            assert (layer.x + layer.radius <= RIGHT).all()
            assert (layer.y - layer.radius >= picture.top).all()
            assert (layer.y + layer.radius <= BOTTOM).all()
        assert all(words.y < picture.top or words.y == NOTE_Y > BOTTOM for words in picture.words)


@pytest.mark.parametrize("n_labels", [2, 6])
def test_legend_entries_do_not_run_into_each_other_or_off_the_picture(n_labels: int) -> None:
    labels = [f"a rather long label number {i % n_labels}" for i in range(240)]
    words = picture_of(mapped(240, labels=labels)).words
    for line in {word.y for word in words}:
        at = 0.0
        for word in sorted((word for word in words if word.y == line), key=lambda word: word.x):
            assert word.x >= at
            at = word.x + (18 if word.fate else 0) + 0.5 * 13 * len(word.text)  # a sans-serif's mean width
        assert at <= WIDTH - 10


def test_a_better_score_is_a_larger_mark() -> None:
    layer = picture_of(mapped(30, scores=[float(-i) for i in range(30)])).layers[-1]
    assert layer.fate is Fate.KEPT
    assert (np.diff(layer.radius) < 0).all()
    equal = picture_of(mapped(30, scores=None)).layers[-1]
    assert len(set(equal.radius.tolist())) == 1


def test_labels_colour_the_marks_where_they_can_be_told_apart() -> None:
    few = picture_of(mapped(30, labels=["a", "b", "c"] * 10))
    assert set(few.layers[-1].colour.tolist()) == {0, 1, 2}
    assert [word.text for word in few.words if word.colour >= 0] == ["a", "b", "c"]
    many = picture_of(mapped(30, labels=[str(i) for i in range(30)]))
    assert set(many.layers[-1].colour.tolist()) == {-1}
    two_clusters = picture_of(mapped(30, clusters=[i % 2 for i in range(30)]))
    assert [word.text for word in two_clusters.words if word.colour >= 0] == ["cluster 0", "cluster 1"]


def test_a_dropped_row_is_joined_to_the_first_pick_of_its_cluster() -> None:
    picture = picture_of(mapped(30))
    assert len(picture.links) == 10
    kept = picture.layers[-1]
    assert np.allclose(picture.links[:, 2], kept.x)  # row 10 + i shares cluster i with pick i
    assert np.allclose(picture.links[:, 3], kept.y)
    assert len(picture_of(mapped(selection_map.LINKED + 1)).links) == 0


HOSTILE = [
    "</title><script>alert(1)</script>",
    "]]><!ENTITY x SYSTEM 'file:///etc/passwd'>&x;",
    "\x00\x01\x1b[31m\x0b\ufffe",
    "half \ud800 a pair",
    "\" onload=\"alert(1)",
    "&amp; < > '",
]  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_texts_ids_and_labels_stay_text(text: str) -> None:
    n = 6
    picture = picture_of(mapped(n, texts=[text] * n, ids=[f"{text}{i}" for i in range(n)], labels=[text, "b"] * 3))
    svg = svg_of(picture)
    root = ET.fromstring(svg.encode("utf-8"))
    tags = {element.tag.removeprefix(SVG) for element in root.iter()}
    assert tags <= {"svg", "title", "desc", "style", "rect", "text", "path", "g", "circle"}
    assert not any(name.startswith("on") for element in root.iter() for name in element.attrib)


@given(st.text(max_size=300))
def test_any_text_gives_well_formed_xml(text: str) -> None:
    ET.fromstring(svg_of(picture_of(mapped(3, texts=[text] * 3))).encode("utf-8"))


def test_the_svg_fetches_nothing_and_follows_the_readers_colours() -> None:
    svg = svg_of(picture_of(mapped(30)))
    assert "href" not in svg
    assert "url(" not in svg
    assert "<script" not in svg
    assert "@media(prefers-color-scheme:dark)" in svg


def test_large_maps_are_dots_without_tooltips_and_of_bounded_size() -> None:
    n = 20_000
    picture = picture_of(mapped(n))
    svg = svg_of(picture)
    root = ET.fromstring(svg)
    dots = [path for path in root.iter(f"{SVG}path") if (path.get("class") or "").startswith("dots")]
    assert len(dots) == 3
    n_drawn = sum((path.get("d") or "").count("M") for path in dots)
    assert 0.9 * n < n_drawn <= n
    assert len(list(root.iter(f"{SVG}title"))) == 1
    assert len(svg) < 18 * n


def test_one_row_no_variance_and_one_dimension_are_drawn() -> None:
    for rows in (np.ones((1, 4)), np.ones((9, 4)), np.zeros((9, 4)), np.linspace(-1, 1, 9)[:, None], np.zeros((3, 0))):
        picture = picture_of(mapped(len(rows), rows=rows))
        assert all(np.isfinite(layer.x).all() and np.isfinite(layer.y).all() for layer in picture.layers)
        ET.fromstring(svg_of(picture))


@pytest.mark.parametrize("shape", [(40, 6), (6, 40), (500, 30)])
def test_the_plane_is_that_of_the_singular_value_decomposition(shape: tuple[int, int]) -> None:
    rows = np.random.default_rng(5).normal(size=shape) * np.linspace(3, 1, shape[1])
    plane, shares = principal_plane(rows)
    centred = rows - rows.mean(axis=0)
    left, values, _ = np.linalg.svd(centred, full_matrices=False)
    expected = left[:, :2] * values[:2]
    signs = np.sign((plane * expected).sum(axis=0))
    assert np.allclose(plane, expected * signs)
    assert np.allclose(shares, values[:2] ** 2 / (values**2).sum())
    turned, _ = principal_plane(rows[::-1])
    assert np.allclose(turned[::-1], plane)  # the same picture for another order of the rows
    single, _ = principal_plane(rows.astype(np.float32))
    assert np.allclose(single, plane, atol=1e-3)


def test_the_palette_shows_on_white_and_on_dark_paper() -> None:
    def luminance(colour: str) -> float:
        red, green, blue = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
        return 0.2126 * red**2.2 + 0.7152 * green**2.2 + 0.0722 * blue**2.2

    for colour in PALETTE:
        assert (1.05) / (luminance(colour) + 0.05) > 1.9
        assert (luminance(colour) + 0.05) / (luminance("#15171b") + 0.05) > 3.0
