"""A teacher's address is a customer's text: whatever it is, the answer is a spec problem and never a fault of ours."""

import pytest

from backend.domain.errors import InvalidSpec
from tests.compile_factories import make_compile
from tests.factories import make_tenant

pytestmark = pytest.mark.usefixtures("committed_db")


@pytest.mark.parametrize(
    "host", ["xn--a", "xn--", "xn--0.com", "a.xn--zz--.com", "xn--a\u0301.com", "ex%41mple.com", "١.com"]
)
def test_a_host_name_in_broken_punycode_is_refused_at_its_pointer(host):
    teacher = {
        "provider": "openai_compatible",
        "model": "m",
        "base_url": f"https://{host}/v1",
        "price": {"input_usd_per_mtok": 1, "output_usd_per_mtok": 1},
    }
    with pytest.raises(InvalidSpec) as refused:
        make_compile(make_tenant(), teacher=teacher)
    assert refused.value.problems[0].pointer == "/teacher/base_url"
