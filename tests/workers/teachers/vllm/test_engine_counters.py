"""What a vLLM says of itself at /metrics, read as hostile input."""

import pytest

from backend.domain.drafts.vocabulary import EngineTokens
from workers.teachers.vllm.engine_counters import read_counters

METRICS = """# HELP vllm:generation_tokens_total Number of generation tokens processed.
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{engine="0",model_name="m"} 6400.0
vllm:generation_tokens_total{engine="1",model_name="m"} 1e+02
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="m"} 8969.0
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="m"} 3661.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="0"} 2000.0
"""


def test_the_parts_of_an_engine_are_added_up() -> None:
    assert read_counters(METRICS.encode()) == EngineTokens(written=6500, proposed=8969, kept=3661)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff\xfe not text",
        METRICS.replace("3661.0", "nan").encode(),
        METRICS.replace("3661.0", "-1").encode(),
        METRICS.replace("3661.0", "1e300").encode(),
        METRICS.replace("3661.0", "a lot").encode(),
        METRICS.replace("3661.0", "9" * 5000).encode(),
        METRICS.replace("spec_decode_num_draft", "spec_decode_num_other").encode(),
        b'{"vllm:generation_tokens_total": 3}',
    ],
)
def test_what_is_no_count_is_none(body: bytes) -> None:
    assert read_counters(body) is None
