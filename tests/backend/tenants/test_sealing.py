"""A sealed value opens for its tenant, whole, or not at all."""

from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.domain.errors import OurError
from backend.tenants.sealing import seal, unseal

TENANT = uuid4()


@given(st.binary(max_size=200))
def test_what_is_sealed_opens(secret):
    assert unseal(TENANT, seal(TENANT, secret)) == secret


@given(st.data())
def test_one_bit_changed_anywhere_does_not_open(data):
    sealed = bytearray(seal(TENANT, b"sk-teacher"))
    place = data.draw(st.integers(0, len(sealed) - 1))
    sealed[place] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(OurError):
        unseal(TENANT, bytes(sealed))


@pytest.mark.parametrize("n", [0, 1, 12, 13, 28])
def test_a_cut_value_does_not_open(n):
    with pytest.raises(OurError):
        unseal(TENANT, seal(TENANT, b"sk-teacher")[:n])


def test_another_tenant_or_purpose_does_not_open():
    with pytest.raises(OurError):
        unseal(uuid4(), seal(TENANT, b"sk-teacher"))
    with pytest.raises(OurError):
        unseal(TENANT, seal(TENANT, b"sk-teacher", purpose=b"a"), purpose=b"b")


def test_the_same_secret_is_sealed_differently_each_time():
    assert seal(TENANT, b"x") != seal(TENANT, b"x")
