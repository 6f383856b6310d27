"""Charts are pure: what goes in, and exactly what must come out. The SVG is parsed, not searched."""

import math
import re
from decimal import Decimal
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.console import charts
from backend.console.charts import Point
from backend.console.charts.heat import shade
from backend.console.charts.scales import compact, finite, percent, share, thin, ticks, written_ticks
from backend.console.templatetags.kolm import money

HOSTILE = "\"><script>alert('1')</script><b onmouseover=x>&amp;"
numbers = st.one_of(
    st.none(),
    st.integers(min_value=-(10**400), max_value=10**400),
    st.floats(allow_nan=True, allow_infinity=True),
    st.decimals(allow_nan=False, allow_infinity=False, places=6, min_value=-(10**18), max_value=10**18),
)


def parsed(markup: str) -> ET.Element:
    """The figure as a tree: what is not well-formed fails here."""
    return ET.fromstring(f"<div>{markup}</div>")


def of_class(tree: ET.Element, name: str) -> list[ET.Element]:
    return [node for node in tree.iter() if name in (node.get("class") or "").split()]


def widths(tree: ET.Element, name: str) -> list[float]:
    return [float((node.get("width") or "").rstrip("%")) for node in of_class(tree, name) if node.tag == "rect"]


def card_row(**changes):
    """One row of a quality card."""
    row = {"name": "student", "words": "the student", "n": 40, "accuracy_ppm": 800_000, "low_ppm": 650_000}
    return row | {"high_ppm": 900_000, "answer_us": 5_000, "time_kind": "own", "per_1000_microusd": 750} | changes


ALL = {
    "bars": lambda label: charts.bars([(label, 3), ("b", 1)], title=label, desc=label),
    "stacked_bars": lambda label: charts.stacked_bars([(label, [1, 2])], [label, label + "2"], title=label),
    "columns": lambda label: charts.columns([(label, [1, 2]), ("x", [0, 1])], [label, label + "2"], title=label),
    "funnel": lambda label: charts.funnel([(label, 10, label), ("b", 4)], title=label),
    "intervals": lambda label: charts.intervals([(label, 0.1, 0.2, 0.3)], title=label, floor=0.15),
    "sparkline": lambda label: charts.sparkline([1, 2, 3], title=label),
    "line": lambda label: charts.line([(label, [(0, 1), (1, 2)]), ("b", [(0, 2)])], title=label),
    "scatter": lambda label: charts.scatter([Point(x=1, y=2, label=label)], [label, "b"], title=label),
    "card_figure": lambda label: charts.card_figure({"rows": [card_row(words=label)]}, title=label),
    "heat": lambda label: charts.heat([[1, 2]], [label], [label, "b"], title=label, corner=label),
}


@pytest.mark.parametrize("name", ALL)
def test_a_hostile_label_stays_text(name):
    markup = ALL[name](HOSTILE)
    tree = parsed(markup)
    tags = {node.tag for node in tree.iter()}
    assert not tags & {"script", "b", "image", "foreignObject", "a"}
    attributes = {attribute for node in tree.iter() for attribute in node.attrib}
    assert "style" not in attributes
    assert not any(attribute.startswith("on") for attribute in attributes)
    assert "<script" not in markup


@pytest.mark.parametrize("name", set(ALL) - {"heat"})
def test_a_picture_says_in_words_what_it_shows(name):
    picture = next(node for node in parsed(ALL[name]("Costs")).iter("svg") if node.get("role"))
    assert picture.get("role") == "img"
    assert (picture.get("aria-label") or "").startswith("Costs")
    assert picture[0].tag == "title"
    assert picture[0].text == "Costs"
    assert picture[1].tag == "desc"
    assert picture[1].text


@pytest.mark.parametrize("name", set(ALL) - {"sparkline"})
def test_the_numbers_are_in_a_table_too(name):
    assert parsed(ALL[name]("Costs")).find(".//table") is not None


@pytest.mark.parametrize(
    "markup",
    [
        charts.bars([], title="T"),
        charts.stacked_bars([], ["a"], title="T"),
        charts.columns([], ["a"], title="T"),
        charts.funnel([], title="T"),
        charts.intervals([], title="T"),
        charts.sparkline([], title="T"),
        charts.sparkline([None, math.nan], title="T"),
        charts.line([], title="T"),
        charts.line([("a", [(0, None)])], title="T"),
        charts.scatter([], ["a"], title="T"),
        charts.scatter([Point(x=math.nan, y=0)], ["a"], title="T"),
        charts.heat([], [], [], title="T"),
    ],
)
def test_nothing_is_said_and_not_drawn(markup):
    assert "T: nothing to show yet." in "".join(parsed(markup).itertext())
    assert "<svg" not in markup


def test_bars_are_as_long_as_their_values():
    tree = parsed(charts.bars([("a", 4), ("b", 1), ("c", 0), ("d", -3), ("e", None)], title="T"))
    assert widths(tree, "s1") == [100, 25, 0, 0, 0]


def test_a_bar_may_be_measured_against_something_larger_than_all_bars():
    assert widths(parsed(charts.bars([("a", 4)], title="T", most=16)), "s1") == [25]


def test_equal_parts_of_a_stack_end_where_the_next_begins():
    tree = parsed(charts.stacked_bars([("a", [1, 1, 2]), ("b", [1, None, 0])], ["x", "y", "z"], title="T"))
    rects = [node for node in tree.iter("rect") if "track" not in (node.get("class") or "")]
    places = [(node.get("x"), node.get("width")) for node in rects]
    assert places == [("0%", "25%"), ("25%", "25%"), ("50%", "50%"), ("0%", "25%")]


def test_columns_stand_on_the_floor_and_the_largest_reaches_the_top():
    tree = parsed(charts.columns([("1", [3]), ("2", [6])], ["x"], title="T"))
    drawn = [(node.get("y"), node.get("height")) for node in of_class(tree, "s1") if node.tag == "rect"]
    assert drawn == [("50%", "50%"), ("0%", "100%")]


def test_one_day_is_a_column_in_the_middle_and_no_wall():
    tree = parsed(charts.columns([("11-23", [3])], ["x"], title="T"))
    (column,) = [node for node in of_class(tree, "s1") if node.tag == "rect"]
    left, width = (float(column.get(name).rstrip("%")) for name in ("x", "width"))
    assert width < 15
    assert left + width / 2 == pytest.approx(50, abs=0.1)


def test_a_value_without_neighbours_is_a_point_on_an_axis_from_zero():
    tree = parsed(charts.line([("a", [(0, None), (5, 0.9), (9, None)])], title="T", span=(0, 23)))
    (point,) = of_class(tree, "point")
    assert point.get("x") == "21.74%"
    assert float(point.get("y")) == 8  # the top: the axis runs from 0 to the value
    written = [node.text for node in tree.iter("text")]
    assert {"0", "20", "0.8"} <= set(written)


def test_a_line_has_no_points_beside_it():
    assert not of_class(parsed(charts.line([("a", [(0, 1), (1, 2)])], title="T")), "point")


def test_a_funnel_shows_what_each_stage_left_of_the_one_before():
    tree = parsed(charts.funnel([("in", 200), ("verified", 150), ("kept", 50)], title="T"))
    assert widths(tree, "funnel") == [100, 75, 25]
    assert widths(tree, "funnel-link") == [100, 75]
    values = [node.text for node in of_class(tree, "value")]
    assert values == ["200", "150 · 75.0 %", "50 · 33.3 %"]


def test_an_interval_below_its_floor_is_marked():
    tree = parsed(charts.intervals([("a", 0.5, 0.6, 0.7), ("b", 0.9, 0.95, 1.0)], title="T", floor=0.8))
    assert len([n for n in of_class(tree, "warn") if n.tag == "rect"]) == 1
    assert len([n for n in of_class(tree, "s1") if n.tag == "rect"]) == 1


def test_a_sparkline_begins_at_zero_and_breaks_at_gaps():
    tree = parsed(charts.sparkline([0, 5, None, 10], title="T"))
    d = next(node.get("d") for node in of_class(tree, "l1"))
    assert d == "M0.00 100.00L33.33 50.00M100.00 0.00"


def test_points_of_the_first_group_are_drawn_last():
    tree = parsed(charts.scatter([Point(x=0, y=0, group=0), Point(x=1, y=1, group=2)], ["a", "b", "c"], title="T"))
    kinds = [node.get("class") for node in of_class(tree, "point")]
    assert kinds == ["point s3", "point s1"]


def test_groups_have_shapes_of_their_own():
    points = [Point(x=i, y=0, group=i) for i in range(6)]
    tree = parsed(charts.scatter(points, list("abcdef"), title="T"))
    shapes = {ET.tostring(node[0]) for node in of_class(tree, "point")}
    assert len(shapes) == 6


def test_heat_shades_by_the_largest_cell():
    tree = parsed(charts.heat([[10, 5, 0], [1, None, 10]], ["a", "b"], ["x", "y", "z"], title="T"))
    kinds = [cell.get("class") for cell in tree.iter("td") if cell.get("class") != "corner"]
    assert kinds == ["h5", "h2", "h0", "h1", "h0", "h5"]
    assert [cell.text for cell in tree.findall(".//tbody//td")] == ["10", "5", "0", "1", None, "10"]


@given(st.lists(st.tuples(st.text(max_size=30), numbers), min_size=1, max_size=8))
def test_no_number_breaks_a_chart(rows):
    for markup in (
        charts.bars(rows, title="T"),
        charts.sparkline([value for _, value in rows], title="T"),
        charts.stacked_bars([(label, [value, value]) for label, value in rows], ["a", "b"], title="T"),
        charts.columns([(label, [value]) for label, value in rows], ["a"], title="T"),
        charts.line([("a", [(i, value) for i, (_, value) in enumerate(rows)])], title="T"),
        charts.heat([[value for _, value in rows]], ["a"], ["c"] * len(rows), title="T", write=lambda v: ""),
    ):
        drawn = re.sub(r">[^<]*<|aria-label=\"[^\"]*\"", "", markup)
        assert "nan" not in drawn
        assert "inf" not in drawn
        for place in re.findall(r'(?:x|y|width|height|cx|cy)="(-?[\d.]+)%"', markup):
            assert 0 <= float(place) <= 100.01


@given(st.floats(allow_nan=False, allow_infinity=False), st.floats(allow_nan=False, allow_infinity=False))
def test_ticks_lie_within_and_are_few(a, b):
    low, high = min(a, b), max(a, b)
    found = ticks(low, high)
    assert 1 <= len(found) <= 50
    assert found == sorted(found)
    slack = 1e-6 * max(1e-300, high / 2 - low / 2) + 1e-12 * max(abs(low), abs(high))
    assert all(low - slack <= tick <= high + slack for tick in found)


def test_ticks_are_round():
    assert ticks(0, 1) == [0, 0.2, 0.4, 0.6, 0.8, 1.0]
    assert ticks(0, 9) == [0, 2, 4, 6, 8]
    assert ticks(0.8, 0.95) == [0.8, 0.85, 0.9, 0.95]
    assert ticks(5, 5) == [5]


@given(numbers, st.floats(-1e300, 1e300), st.floats(-1e300, 1e300))
def test_a_share_is_between_0_and_100(value, a, b):
    assert 0 <= share(value, min(a, b), max(a, b)) <= 100


def test_scales():
    assert share(5, 0, 10) == 50
    assert share(11, 0, 10) == 100
    assert share(-1, 0, 10) == 0
    assert share(3, 3, 3) == 50
    assert share(5e-324, 0, 5e-324) == 100  # half of it is nothing
    assert share(1.7e308, -1.7e308, 1.7e308) == 100  # the span is no float
    assert share(1.7e308, 0, 5e-324) == 100
    assert percent(12.5) == "12.5%"
    assert percent(100.0) == "100%"
    assert percent(0.0) == "0%"
    assert finite(10**400) is None
    assert finite(Decimal("1.5")) == 1.5
    assert [compact(v) for v in (0, 950, 1234, 3_400_000, 1e15, None, 0.1234)] == [
        "0",
        "950",
        "1.23k",
        "3.4M",
        "1.0e+15",
        "–",
        "0.123",
    ]
    assert (shade(None, 5), shade(0, 5), shade(0.01, 5), shade(5, 5), shade(1, 0)) == (0, 0, 1, 5, 0)


def test_a_chart_writes_its_numbers_as_it_is_told():
    tree = parsed(charts.bars([("synthesis", 1_234_500)], title="Cost", write=money))
    assert [node.text for node in of_class(tree, "value")] == ["$1.23"]


def test_a_card_has_an_interval_where_there_is_an_accuracy_and_says_where_there_is_none():
    unmeasured = card_row(name="teacher", accuracy_ppm=None, low_ppm=None, high_ppm=None, n=0, time_kind=None)
    tree = parsed(charts.card_figure({"rows": [card_row(n_trained=48), unmeasured | {"answer_us": None}]}))
    assert widths(tree, "s1") == [25.0]
    assert len(of_class(tree, "whisker")) == 1
    lines = [node.text for node in tree.iter() if node.tag == "text"]
    assert "80.0 % [65.0, 90.0] of 40" in lines
    assert "fitted on 48" in lines
    assert "5 ms · $0.00075 for 1,000" in lines
    assert "not measured" in lines
    assert "– · $0.00075 for 1,000" in lines


def test_the_marks_of_a_line_lie_on_its_scale_in_the_colours_that_follow():
    course = [("a", [(0, 0), (10, 1)])]
    tree = parsed(charts.line(course, title="T", height=130, marks=[("b", [(0, 0), (5, None)]), ("c", [(10, 1)])]))
    drawn = [(node.get("x"), node.get("y"), node.get("class")) for node in of_class(tree, "point")]
    assert drawn == [("0%", "108.0", "point s2"), ("100%", "8.0", "point s3")]
    assert [node.text for node in tree.iter("th") if node.get("scope") == "col"] == [None, "a"]


MANY = 10_000
COURSES = {
    "an index": [float(n) for n in range(MANY)],
    "all equal": [7.0] * MANY,
    "all nothing": [0.0] * MANY,
    "one peak": [9.0 if n == 6_000 else 0.0 for n in range(MANY)],
    "huge": [1e300 * (n % 7) for n in range(MANY)],
}


def pictures(values: list[float]) -> dict[str, str]:
    rows = [(f"row {n}", value) for n, value in enumerate(values)]
    return {
        "bars": charts.bars(rows, title="T"),
        "stacked_bars": charts.stacked_bars([(label, [value, 1]) for label, value in rows], ["a", "b"], title="T"),
        "columns": charts.columns([(label, [value, 0]) for label, value in rows], ["a", "b"], title="T"),
        "funnel": charts.funnel(rows, title="T"),
        "intervals": charts.intervals([(label, 0, value, value) for label, value in rows], title="T"),
        "sparkline": charts.sparkline(values, title="T"),
        "line": charts.line([("a", list(enumerate(values)))], title="T"),
        "points of a line": charts.line(
            [("a", [(n, None if n % 2 else value) for n, value in enumerate(values)])], title="T"
        ),
        "scatter": charts.scatter(
            [Point(x=n % 100, y=value, group=n % 3, is_ringed=n % 5 == 0) for n, value in enumerate(values)],
            ["a", "b", "c"],
            title="T",
        ),
    }


@pytest.mark.parametrize("course", COURSES)
def test_ten_thousand_rows_make_a_picture_of_a_bounded_size(course):
    for name, markup in pictures(COURSES[course]).items():
        parsed(markup)
        assert len(markup) < (600_000 if name == "scatter" else 130_000), (name, len(markup))
        drawn = re.sub(r">[^<]*<|aria-label=\"[^\"]*\"", "", markup)
        assert "nan" not in drawn, name
        assert "inf" not in drawn, name


@given(st.lists(st.one_of(st.none(), st.integers(0, 5)), min_size=1, max_size=400), st.integers(8, 64))
def test_a_thinned_course_keeps_its_ends_its_peaks_and_its_order(values, most):
    points = [(float(x), None if y is None else float(y)) for x, y in enumerate(values)]
    kept = thin(points, most)
    assert len(kept) <= most + 4
    assert kept == sorted(kept, key=lambda point: point[0])
    assert (kept[0], kept[-1]) == (points[0], points[-1])
    known = [y for _, y in points if y is not None]
    if known:
        kept_known = [y for _, y in kept if y is not None]
        assert (min(kept_known), max(kept_known)) == (min(known), max(known))


def test_columns_drawn_as_one_have_the_sum_of_their_neighbours():
    tree = parsed(charts.columns([(f"d{n}", [1]) for n in range(1_000)], ["a"], title="T"))
    assert len([node for node in of_class(tree, "s1") if node.tag == "rect"]) <= 120
    assert "1k in all" in next(tree.iter("desc")).text
    first = next(tree.iter("tbody"))[0]
    assert [cell.text for cell in first] == ["d0 – d8", "9", "9"]


@given(st.integers(0, 10**13), st.integers(0, 12))
def test_no_two_ticks_of_money_are_written_alike(amount, small):
    for low, high in ((0, amount), (0, small), (small, small + amount)):
        words = [text for _, text in written_ticks(low, high, money)]
        assert 1 <= len(words) == len(set(words))


@pytest.mark.parametrize("amount", [1, 2, 3])
def test_less_than_a_cent_has_a_scale_of_whole_micro_dollars(amount):
    tree = parsed(charts.columns([("1", [amount])], ["a"], title="T", write=money))
    written = [node.text for node in tree.iter("text") if (node.text or "").startswith("$")]
    assert written[0] == "$0"
    assert len(written) == len(set(written)) >= 2
