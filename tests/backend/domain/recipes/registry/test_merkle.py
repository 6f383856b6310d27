"""Merkle trees: RFC 9162's, and nothing but a leaf at its place is proven."""

from hypothesis import given
from hypothesis import strategies as st

from backend.domain.recipes.registry.merkle import leaf_hash, merkle_path, merkle_root, root_of_path

# The inputs and roots of the test vectors that Certificate Transparency's implementations share.
VECTORS = ("", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f")
ROOTS = (
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
)
LEAVES = st.lists(st.binary(max_size=6), min_size=1, max_size=40)


def test_roots_are_those_that_others_compute():
    leaves = [leaf_hash(bytes.fromhex(vector)) for vector in VECTORS]
    assert [merkle_root(leaves[: n + 1]).hex() for n in range(8)] == list(ROOTS)
    assert merkle_root([]).hex() == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


@given(LEAVES, st.data())
def test_every_leaf_is_proven_at_its_place_and_at_no_other(leaves, data):
    hashes = [leaf_hash(leaf) for leaf in leaves]
    index = data.draw(st.integers(0, len(hashes) - 1))
    path = merkle_path(hashes, index)
    root = merkle_root(hashes)
    assert root_of_path(hashes[index], index, len(hashes), path) == root
    for other in range(len(hashes)):
        if hashes[other] != hashes[index]:
            assert root_of_path(hashes[other], index, len(hashes), path) != root
            assert root_of_path(hashes[index], other, len(hashes), path) != root


@given(LEAVES, st.data())
def test_an_altered_path_leads_nowhere(leaves, data):
    hashes = [leaf_hash(leaf) for leaf in leaves]
    index = data.draw(st.integers(0, len(hashes) - 1))
    path = merkle_path(hashes, index)
    for altered in (path[:-1] if path else [b"x" * 32], [*path, b"x" * 32], [b"y" * 32 for _ in path] or [b"y" * 32]):
        assert root_of_path(hashes[index], index, len(hashes), altered) != merkle_root(hashes)


def test_places_that_cannot_be_have_no_root():
    leaf = leaf_hash(b"a")
    assert root_of_path(leaf, -1, 4, []) is None
    assert root_of_path(leaf, 4, 4, []) is None
    assert root_of_path(leaf, 0, 0, []) is None
    assert root_of_path(leaf, 0, 2**100, [leaf] * 64) is None
    assert root_of_path(leaf, 0, 2**100, [leaf] * 100) is None


def test_a_node_is_no_leaf():
    """The second-preimage trick: two leaves shown as one."""
    left, right = leaf_hash(b"a"), leaf_hash(b"b")
    assert merkle_root([left, right]) != merkle_root([leaf_hash(left + right)])
