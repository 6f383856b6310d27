"""What runners and bases say together: who may have the base."""

from typing import Any

import pytest

from backend.domain.jobs.base_checks import CheckBaseResult, RunnerReport
from backend.domain.planning.preflight.base_lines import (
    KnownRunner,
    base_lines,
    bases_of,
    runner_line,
)
from backend.domain.planning.preflight.lines import LineStatus
from backend.domain.planning.preflight.size_lines import memory_line
from backend.domain.spec.parsing import Spec, parse_spec
from tests.backend.domain.spec.test_parsing import document

BASE = "Qwen/Qwen2.5-7B-Instruct"
SEVEN_B = CheckBaseResult(size_bytes=15_231_233_024, n_parameters=7_615_616_512, adapter_parameters=2_523_136)
KINDS = ["distill", "distill_causal", "evaluate_causal", "check_base"]


def spec_of(**causal: Any) -> Spec:
    return parse_spec(document(train={"kind": "causal", "causal": {"base": BASE, **causal}}))


def runner(name: str = "a", **report: Any) -> KnownRunner:
    return KnownRunner(name=name, report=RunnerReport(**({"kinds": KINDS} | report)))


def the_base(spec: Spec | None = None) -> Any:
    (base,) = bases_of(spec or spec_of())
    return base


def refused(code: str, message: str = "The base is wrong: so it is. Use another.", **more: Any) -> CheckBaseResult:
    return CheckBaseResult(code=code, message=message, **more)


def test_a_label_task_that_tries_both_kinds_needs_both_bases() -> None:
    bases = bases_of(parse_spec(document(train={"kind": "auto"})))
    assert [(base.kind.value, base.field) for base in bases] == [
        ("encoder", "train.base"),
        ("causal", "train.causal.base"),
    ]


def test_without_a_report_nothing_is_known_and_nothing_is_refused() -> None:
    spec, base = spec_of(), the_base()
    lines = [runner_line(base, []), *base_lines(base, None, "", []), memory_line(spec, base, None, [])]
    assert [line.status for line in lines] == [LineStatus.WARNING] * 3
    assert all("not known" in line.sentence for line in lines)


def test_a_runner_that_takes_no_such_training_is_none_for_it() -> None:
    line = runner_line(the_base(), [runner(kinds=["infer"])])
    assert (line.status, line.code) == (LineStatus.WARNING, "no_runner_known")
    line = runner_line(the_base(), [runner(device="cuda", device_name="NVIDIA L4", memory_bytes=23_000_000_000)])
    assert line.status is LineStatus.PASSED
    assert "a (NVIDIA L4, 23.0 GB)" in line.sentence


@pytest.mark.parametrize(
    ("runners", "status"),
    [
        ([{"device": "cpu", "has_4_bits": False}], LineStatus.FAILED),
        ([{"device": "cuda", "has_4_bits": False}, {"device": "cpu", "has_4_bits": False}], LineStatus.FAILED),
        ([{"device": "cuda", "has_4_bits": True}, {"device": "cpu", "has_4_bits": False}], LineStatus.WARNING),
        ([{"device": "cuda", "has_4_bits": True}], LineStatus.PASSED),
        ([{"device": "cuda"}], LineStatus.PASSED),  # of an older release: not known
    ],
)
def test_qlora_wants_a_runner_that_holds_a_base_in_4_bits_before_anything_is_paid(
    runners: list[dict[str, Any]], status: LineStatus
) -> None:
    spec = spec_of(variant="qlora")
    known = [runner(name, **report) for name, report in zip("ab", runners, strict=False)]
    line = runner_line(the_base(spec), known)
    assert line.status is status, line.sentence
    assert line.code == ("" if status is LineStatus.PASSED else "not_on_this_device")
    assert runner_line(the_base(), known).status is LineStatus.PASSED, "plain LoRA does not care"


def test_a_held_base_is_told_with_its_size() -> None:
    held = CheckBaseResult(is_here=True, size_bytes=15_231_233_024)
    (line,) = base_lines(the_base(), held, "a", [runner(bases=[BASE])])
    assert line.sentence == f"The runner a holds the base '{BASE}' (15.2 GB)."
    (line,) = base_lines(the_base(), SEVEN_B, "a", [runner()])
    assert "may fetch" in line.sentence


@pytest.mark.parametrize(
    "code",
    ["unknown_base", "gated_base", "base_truncated", "base_needs_remote_code", "base_without_tokenizer",
     "base_wrong_architecture", "not_causal", "base_too_large"],
)  # fmt: skip
def test_what_is_wrong_with_a_base_is_the_specs_to_mend(code: str) -> None:
    (line,) = base_lines(the_base(), refused(code), "a", [runner()])
    assert (line.status, line.code) == (LineStatus.FAILED, code)
    assert (line.sentence, line.what_to_do) == ("The base is wrong: so it is.", "Use another.")


@pytest.mark.parametrize("code", ["hub_unavailable", "base_cache_full", "base_cache_failed"])
def test_a_hub_or_disk_that_fails_is_ours_and_refuses_nothing(code: str) -> None:
    (line,) = base_lines(the_base(), refused(code), "a", [runner()])
    assert (line.status, line.code) == (LineStatus.WARNING, code)


def test_a_refusal_of_one_runner_alone_is_a_warning_where_another_may_have_the_base() -> None:
    offline = runner("a", is_offline=True)
    for other in (runner("b"), runner("b", is_offline=True, bases=[BASE])):
        (line,) = base_lines(the_base(), refused("unknown_base"), "a", [offline, other])
        assert line.status is LineStatus.WARNING
        assert line.sentence.startswith("On the runner a: ")
    (line,) = base_lines(the_base(), refused("unknown_base"), "a", [offline, runner("b", is_offline=True)])
    assert line.status is LineStatus.FAILED
    for room, status in ((10**9, LineStatus.FAILED), (10**12, LineStatus.WARNING)):
        too_large = refused("base_too_large", size_bytes=15_000_000_000)
        (line,) = base_lines(the_base(), too_large, "a", [runner("a"), runner("b", room_bytes=room)])
        assert line.status is status, room


def test_a_runner_that_neither_holds_the_base_nor_asks_a_hub_is_warned_of() -> None:
    found, left_out = base_lines(the_base(), SEVEN_B, "a", [runner("a"), runner("b", is_offline=True)])
    assert found.status is LineStatus.PASSED
    assert (left_out.status, left_out.code) == (LineStatus.WARNING, "unknown_base")
    assert "b" in left_out.sentence
