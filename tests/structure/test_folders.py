"""A folder holds about twenty files of its own, and no two folders import each other: exceptions have reasons here."""

from tests.structure.graph import loose_files, two_way_pairs
from tests.structure.report import LOOSE
from tests.structure.tree import ROOT, modules

TREE = modules(ROOT)
# folder: why it holds more than LOOSE files of its own
CROWDED: dict[str, str] = {}
# two folders that import each other: why
PAIRS: dict[tuple[str, str], str] = {}


def test_a_folder_is_read_at_a_glance() -> None:
    crowded = {name for name, n in loose_files(TREE).items() if n > LOOSE}
    assert crowded == CROWDED.keys()


def test_no_two_folders_import_each_other() -> None:
    pairs = {(pair.one, pair.other): pair.example for pair in two_way_pairs(TREE)}
    assert {pair: example for pair, example in pairs.items() if pair not in PAIRS} == {}
    assert PAIRS.keys() <= pairs.keys(), "a reason that is no longer needed"
