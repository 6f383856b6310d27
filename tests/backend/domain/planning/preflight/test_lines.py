"""The one value that all surfaces show."""

from backend.domain.planning.preflight.lines import (
    Check,
    LineStatus,
    Preflight,
    PreflightFailed,
    PreflightLine,
    failed_line,
    in_order,
    passed_line,
    skipped_line,
    warning_line,
)


def test_a_list_is_read_back_as_it_was_written():
    preflight = in_order(
        [
            failed_line(Check.BASE, "There is none.", code="unknown_base", what_to_do="Correct it."),
            warning_line(Check.PRICE, "It is old.", code="old_price", what_to_do="Check it."),
            skipped_line(Check.TEACHER, "It was not asked."),
            passed_line(Check.GOLD, "There is enough."),
        ]
    )
    assert Preflight.from_json(preflight.to_json()) == preflight
    assert [line.check for line in preflight.lines] == [Check.GOLD, Check.PRICE, Check.BASE, Check.TEACHER]


def test_a_warning_refuses_nothing_and_a_failure_does():
    doubtful = Preflight(lines=(warning_line(Check.PRICE, "It is old.", code="old_price"),))
    assert doubtful.passed
    assert not Preflight(lines=(*doubtful.lines, failed_line(Check.BASE, "No.", code="x", what_to_do="Y."))).passed


def test_a_refusal_says_the_first_failure_in_full_and_how_many_more_there_are():
    lines = tuple(failed_line(Check.BASE, f"Wrong {i}.", code="unknown_base", what_to_do="Mend it.") for i in range(3))
    refused = PreflightFailed(Preflight(lines=lines))
    assert refused.code == "preflight_failed"
    assert refused.message.startswith("Refused before a candidate was paid for. Wrong 0. Mend it.")
    assert "2 more" in refused.message


def test_a_line_that_passed_has_nothing_to_do():
    line = passed_line(Check.GATE, "It can be passed.")
    assert line == PreflightLine(check=Check.GATE, status=LineStatus.PASSED, sentence="It can be passed.")
    assert (line.what_to_do, line.code) == ("", "")
