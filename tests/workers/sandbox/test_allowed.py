"""What a check may do does work behind the filter: the allowed modules, and the calls in them that load or ask late."""

import pytest

from backend.domain.spec.outputs import PythonCheck
from workers.sandbox import Limits, run_checks
from workers.sandbox.child import ALLOWED
from workers.sandbox.pointers import parts_at

LIMITS = Limits(row_s=5.0, batch_s=30.0)
LATE = """
import calendar, datetime, decimal, difflib, fractions, functools, itertools, json, math, random, re, statistics, time
import textwrap, typing, unicodedata, dataclasses, enum, collections, copy, heapq, bisect, string

@dataclasses.dataclass(frozen=True)
class Point:
    x: int
    tags: typing.NamedTuple = None

class Colour(enum.Enum):
    RED = 1

def check(input, output):
    assert datetime.datetime.strptime("3 May 2024", "%d %B %Y").date().isoformat() == "2024-05-03"
    assert datetime.datetime.now().astimezone().utcoffset() == datetime.timedelta(0)
    assert time.strftime("%Y", time.localtime(0)) == "1970"
    assert calendar.monthrange(2024, 2) == (3, 29)
    assert "bücher.example".encode("idna") == b"xn--bcher-kva.example"
    assert "é".encode("utf-16").decode("utf-16") == "é" and "é".encode("latin-1") == b"\\xe9"
    assert decimal.Decimal("1.10") + decimal.Decimal("2.20") == decimal.Decimal("3.30")
    assert fractions.Fraction("0.5") == 0.5 and math.isclose(statistics.stdev([1, 2, 3]), 1)
    assert random.random() < 1 and random.Random(1).choice("ab") in "ab" and random.SystemRandom().random() < 1
    assert difflib.get_close_matches("appel", ["apple"]) == ["apple"]
    assert unicodedata.normalize("NFC", "e\\u0301") == "é" and textwrap.fill("a b c", 3)
    assert re.sub(r"(?i)A+", "b", "xAAy") == "xby" and json.loads(json.dumps({"a": [1.5, None]})) == {"a": [1.5, None]}
    assert sorted([Point(1)], key=lambda p: p.x) == [copy.deepcopy(Point(1))] and Colour(1) is Colour.RED
    assert functools.reduce(lambda a, b: a + b, itertools.chain([1], [2])) == 3 and string.digits
    assert sum(len(bytearray(1 << 20)) for _ in range(300)) == 300 << 20  # given back in between
    assert len({str(i): "x" * 100 for i in range(200_000)}) == 200_000
    try:
        eval("1 +")
    except SyntaxError:
        pass
    print("seen by nobody")
    return output["n"] == len(input)
"""


def test_the_allowed_modules_work_also_where_they_load_late():
    check = PythonCheck(kind="python", source=LATE)
    assert run_checks([check], [("abc", {"n": 3}), ("abc", {"n": 4})], limits=LIMITS) == [[True], [False]]


@pytest.mark.parametrize("name", sorted(ALLOWED))
def test_an_allowed_module_is_named_in_the_docs(name):
    from pathlib import Path

    page = (Path(__file__).parents[3] / "docs" / "checks.md").read_text()
    assert name in page.split("Allowed imports: ")[1].split(". The time zone")[0].replace("`", " ").split()


def test_large_rows_go_to_several_processes_and_keep_their_order():
    check = PythonCheck(kind="python", source="def check(input, output):\n    return output[0] == input[-1]")
    rows = [("x" * 3_000_000 + str(i % 10), str(i % 10) + "y" * 100) for i in range(7)]
    assert run_checks([check], rows, limits=LIMITS) == [[True]] * 7


@pytest.mark.parametrize(
    ("pointer", "parts"),
    [
        ("/a", [{"b": [1, 2], "c/d": 3}]),
        ("/a/b/*", [1, 2]),
        ("/a/b/1", [2]),
        ("/a/b/2", []),
        ("/a/b/-1", []),
        ("/a/b/x", []),
        ("/a/c~1d", [3]),
        ("/a/*", [[1, 2], 3]),
        ("/a/*/*", [1, 2]),
        ("/nowhere/*", []),
        ("/a/c~1d/0", []),
    ],
)
def test_a_pointer_finds_its_parts(pointer, parts):
    assert parts_at({"a": {"b": [1, 2], "c/d": 3}}, pointer) == parts
