"""The measures of the tree, on trees of a few files."""

from pathlib import Path

from tests.structure.graph import loose_files, two_way_pairs
from tests.structure.lines import count, read_page, report, write_page
from tests.structure.tree import modules
from tests.structure.walks import index_of, walk

PAGE = "# Lines\n\n| room | before | budget |\n|---|---|---|\n| `backend` | 9 | 4 |\n| `gone` |  | 2 |\n\nEnd.\n"


def write(root: Path, **texts: str) -> Path:
    for name, text in texts.items():
        path = root / (name.replace("__", "/") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_a_pair_is_two_folders_that_import_each_other_wherever_the_statement_stands(tmp_path: Path) -> None:
    lazy = "def f():\n    from backend.b.y import g\n    return g\n"
    tree = write(
        tmp_path, backend__a__x=lazy, backend__b__y="from backend.a import x\n", backend__c__z="import backend.a.x\n"
    )
    (pair,) = two_way_pairs(modules(tree, ("backend",)))
    assert (pair.one, pair.other, pair.n_there, pair.n_back) == ("backend.a", "backend.b", 1, 1)


def test_what_nothing_imports_closes_no_circle(tmp_path: Path) -> None:
    tree = write(
        tmp_path, backend__asgi="import backend.a.x\n", backend__a__x="import backend.blobs\n", backend__blobs=""
    )
    assert two_way_pairs(modules(tree, ("backend",))) == []


def test_the_second_name_of_the_client_is_its_folder(tmp_path: Path) -> None:
    tree = write(tmp_path, gpu_runners__kolm__x="import gpu_runners.a.y\n", gpu_runners__a__y="from kolm.x import z\n")
    assert len(two_way_pairs(modules(tree, ("gpu_runners",)))) == 1


def test_loose_files_are_those_of_a_folder_itself(tmp_path: Path) -> None:
    tree = write(tmp_path, backend__a__x="", backend__a__y="", backend__a__b__z="")
    (tree / "backend/a/__init__.py").touch()
    assert loose_files(modules(tree, ("backend",))) == {"backend.a": 2, "backend.a.b": 1}


def test_a_room_is_counted_whole_and_a_package_by_its_own_files(tmp_path: Path) -> None:
    counted = count(
        modules(write(tmp_path, backend__x="1\n", backend__a__y="1\n2\n", backend__a__b__z="1\n"), ("backend",))
    )
    assert (counted["backend"], counted["backend.a"], counted["backend.a.b"]) == (4, 2, 1)


def test_growth_is_said_and_writing_the_page_keeps_what_stands_around_the_table() -> None:
    assert read_page(PAGE) == {"backend": ("9", 4), "gone": ("", 2)}
    assert [line.split() for line in report({"backend": 6}, read_page(PAGE))] == [
        ["backend", "6", "of", "4", "+2"],
        ["gone", "0", "of", "2"],
    ]
    assert write_page(PAGE, {"backend": 1234, "new": 1}).endswith(
        "|---|\n| `backend` | 9 | 1,234 |\n| `new` |  | 1 |\n\nEnd.\n"
    )


def test_a_way_enters_what_takes_the_value_and_what_a_call_made_of_it(tmp_path: Path) -> None:
    start = "from backend.b import parse, other\nfrom backend import c\n"
    start += (
        "def submit(document, key):\n    spec = parse(document)\n    other(key)\n    c.keep(spec=spec)\n    own(spec)\n"
    )
    start += "def own(spec):\n    return parse(spec)\n"
    parse = "def parse(text):\n    return text\ndef other(key):\n    return key\n"
    tree = modules(write(tmp_path, backend__a=start, backend__b=parse, backend__c="def keep(*, spec):\n    pass\n"))
    way = walk(index_of(tree), "backend.a", "submit", "document")
    assert way.files == ("backend.a", "backend.b", "backend.c", "backend.a")
    assert (way.n_rooms, way.n_returns, way.n_names) == (3, 1, 3)


def test_a_way_that_begins_in_a_method_follows_self_and_methods_of_one_class(tmp_path: Path) -> None:
    first = "class Scheduler:\n    def step(self):\n        self._admit()\n        self.rows.place(1)\n"
    first += "    def _admit(self):\n        pass\n"
    tree = modules(
        write(tmp_path, backend__a=first, backend__b="class Rows:\n    def place(self, n):\n        pass\n"),
        ("backend",),
    )
    assert walk(index_of(tree), "backend.a", "Scheduler.step", "self").files == ("backend.a", "backend.b")
