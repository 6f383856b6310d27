"""The lines of the tiny calls: what a teacher, its fallback model or the model that gives rewards answered, or why it
did not."""

from dataclasses import dataclass

from backend.domain.answers.excerpts import excerpt
from backend.domain.answers.json_schemas import validator
from backend.domain.answers.json_values import BadAnswer, parse_answer, strip_fence
from backend.domain.dialects.faults import FAULT_TEXTS, TeacherFault
from backend.domain.dialects.reward_apis import reward_api
from backend.domain.money.vendor_prices import host_of
from backend.domain.number_words import usd
from backend.domain.planning.preflight.asked_models import AskedModel, asked_models
from backend.domain.planning.preflight.lines import (
    Check,
    PreflightLine,
    failed_line,
    passed_line,
    skipped_line,
    warning_line,
)
from backend.domain.spec.models import Spec
from backend.domain.spec.outputs import JsonOutput

TEST_TEXT = "This is a test of the connection."  # the input that the tiny call asks about
TEST_TOKENS = 256  # its longest answer, thoughts apart
MOST_SPACES = 64  # at the end of an answer: deep JSON is indented by less
DEADLINE_S = 20.0  # while somebody waits for the list; a compile waits longer
SLOW = "teacher_slow"
_ELSEWHERE = frozenset({TeacherFault.NO_SUCH_PATH, TeacherFault.NOT_OPENAI, TeacherFault.HTML, TeacherFault.REDIRECT})
# failures that name no fault of the endpoint, by code: what happened, what to do
_FAILURES = {
    "teacher_unreachable": (
        "no connection to it could be made or kept",
        "Check host and port of teacher.base_url, and that the server runs; then try again.",
    ),
    "teacher_timeout": (
        "it did not answer in time",
        "Check host and port of teacher.base_url, and whether the server is busy; then try again.",
    ),
    "teacher_rate_limited": (
        "it answers 429, too many requests",
        "Wait a minute and try again, or raise the limit at your vendor.",
    ),
    "teacher_protocol": (
        "its answer is a chat completion that cannot be read (cut, impossible numbers, half a character)",
        "Look at what answers at teacher.base_url: a newer version of your own server, or the vendor's own address, "
        "fixes it.",
    ),
    "teacher_too_large": (
        "its answer is far longer than the call can explain, and was not read to its end",
        "Look at what answers at teacher.base_url: a proxy or another service may answer instead of the teacher.",
    ),
    "teacher_only_thought": (
        "it thought until its limit and gave no answer",
        "Raise teacher.thought_tokens, or lower teacher.effort.",
    ),
    "unknown_teacher_key": (
        "the key that the spec names is not stored here",
        "Store the key with POST /v1/teacher_keys and put the new id in teacher.api_key.",
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TinyAnswer:
    """The answer to a tiny call. `wants_logprobs`: they were asked for; `dialect` is how the endpoint was spoken to,
    `learnt` what its refusals have taught so far; `is_filtered`: the vendor's filter left nothing of it. Of a label
    task: `has_label`, whether a label can be read. Of a model that gives rewards: `has_reward`, whether a number of the
    test can be read, and `rates_nonsense`, whether it rates a line of random letters as good. Of
    a judge of drafts: `has_verdict`, whether the numbers of drafts can be read."""

    text: str
    is_cut: bool
    has_logprobs: bool
    wants_logprobs: bool
    latency_ms: int
    cost_microusd: int
    dialect: str
    learnt: tuple[str, ...] = ()
    has_label: bool = True
    has_reward: bool = True
    has_verdict: bool = True
    rates_nonsense: bool = False
    is_filtered: bool = False


def skipped_lines(spec: Spec) -> list[PreflightLine]:
    """The lines of a teacher that is part of this installation, or a recording: there is nothing to ask."""
    who = "The built-in grammar teacher" if spec.teacher.provider == "grammar" else "A recording"
    return [skipped_line(Check.TEACHER, f"{who} needs no call.")]


def unasked_lines(spec: Spec, why: str) -> list[PreflightLine]:
    return [skipped_line(one.check, f"The {one.name} was not asked: {why}.") for one in asked_models(spec)]


def answer_lines(asked: AskedModel, answer: TinyAnswer) -> list[PreflightLine]:
    if answer.is_filtered and asked.check is not Check.REWARD:  # the test is harmless: the task's own words are refused
        return [failure_line(asked, code="teacher_rejected", fault=TeacherFault.CONTENT)]
    if asked.check is not Check.REWARD and not answer.text.strip():
        return [_empty_line(asked)]
    learnt = f", without {', '.join(answer.learnt)}" if answer.learnt else ""
    sentence = (
        f"{_who(asked)} answered in {answer.latency_ms} ms for {usd(answer.cost_microusd)}; it is spoken to as "
        f"{answer.dialect}{learnt}."
    )
    if asked.check is Check.REWARD and not answer.has_reward:
        return [_unread_line(asked, sentence, answer)]
    if not answer.has_verdict:
        return [_no_verdict_line(asked, sentence)]
    lines = [passed_line(asked.check, sentence)]
    if asked.check is Check.TEACHER:
        lines += [] if answer.has_label else [_no_label_line(answer)]
        lines += [*_structured_lines(asked.spec, answer), _logprobs_line(answer)]
    return lines


def _empty_line(asked: AskedModel) -> PreflightLine:
    """The line of an answer without a word. A server of one's own that has a reasoning parser takes what it believes to
    be a thought out of the content, and with thoughts switched off that is the answer."""
    thoughts = (
        "it may have left its answer among its thoughts: set teacher.effort to none, or start the server without "
    )
    if asked.spec.teacher.effort == "none":
        thoughts = (
            "a reasoning parser may take an answer for a thought where teacher.effort is none: leave it out, or "
            "start the server without "
        )
    return failed_line(
        asked.check,
        f"{_who(asked)} answered the test with nothing.",
        code="empty_answer",
        what_to_do=asked.in_its_words(
            f"Of a server of your own, {thoughts}that parser (vLLM and SGLang: --reasoning-parser, "
            "llama-server: --reasoning-format none). Of a vendor, look at what teacher.model answers "
            "there, or name another model."
        ),
    )


def _no_label_line(answer: TinyAnswer) -> PreflightLine:
    return warning_line(
        Check.TEACHER,
        f"No label can be read from the teacher's answer to the test: {excerpt(answer.text)}.",
        code="label_unread",
        what_to_do="Nothing where it says that no label fits the test. Else say in task that the label alone is the "
        "answer; answers without a label are paid for and dropped.",
    )


def _unread_line(asked: AskedModel, sentence: str, answer: TinyAnswer) -> PreflightLine:
    """The line of an answer that is worth nothing: a compile pays for each such answer, and ends without its reward."""
    finding = "Its answer to the test holds no number that can be read."
    if answer.rates_nonsense:
        finding = "It rates a line of random letters as good: no rating beside such a line is believed."
    what_to_do = asked.in_its_words("Name another model in teacher.model, or leave the reward out")
    return warning_line(
        Check.REWARD,
        f"{sentence} {finding}",
        code="reward_unread",
        what_to_do=f"{what_to_do}: answers without a number are paid for, and verifiers rank instead.",
    )


def _no_verdict_line(asked: AskedModel, sentence: str) -> PreflightLine:
    """The line of an answer that says nothing of drafts: each is paid for, and the teacher is asked after all."""
    what_to_do = asked.in_its_words("Name another model in teacher.model, or leave the judge out")
    return warning_line(
        Check.JUDGE,
        f"{sentence} Its answer to the test names no drafts in the form that was asked for.",
        code="judge_unread",
        what_to_do=f"{what_to_do}: what cannot be read is paid for, and the teacher judges.",
    )


def _structured_lines(spec: Spec, answer: TinyAnswer) -> list[PreflightLine]:
    if not isinstance(spec.output, JsonOutput):
        return []
    if answer.is_cut and len(answer.text) - len(answer.text.rstrip()) > MOST_SPACES:
        sentence = f"The teacher wrote white space until the limit of {TEST_TOKENS} tokens, as a schema allows it."
        what_to_do = (
            "Say in task what the answer looks like, or let the server write JSON without white space (vLLM: "
            "disable_any_whitespace); answers that are cut are paid for and dropped."
        )
        return [warning_line(Check.STRUCTURED_OUTPUT, sentence, code="answer_white_space", what_to_do=what_to_do)]
    if answer.is_cut:
        return [skipped_line(Check.STRUCTURED_OUTPUT, f"The answer was cut at {TEST_TOKENS} tokens and is not judged.")]
    what_to_do = "Say in task what the answer looks like; answers that do not fit are paid for and dropped."
    try:
        value = parse_answer(strip_fence(answer.text.strip()))
    except BadAnswer:
        sentence = "The teacher's answer to the test was no JSON."
        return [warning_line(Check.STRUCTURED_OUTPUT, sentence, code="answer_not_json", what_to_do=what_to_do)]
    if validator(spec.output.answer_schema)(value):
        sentence = "The teacher's answer to the test is JSON and does not fit output.schema."
        return [warning_line(Check.STRUCTURED_OUTPUT, sentence, code="answer_not_in_schema", what_to_do=what_to_do)]
    return [passed_line(Check.STRUCTURED_OUTPUT, "The teacher's answer to the test is JSON and fits output.schema.")]


def _logprobs_line(answer: TinyAnswer) -> PreflightLine:
    """Candidates are ranked by a reward or by verifiers, the default one at least: nothing needs log-probs."""
    if answer.has_logprobs:
        return passed_line(Check.LOGPROBS, "It gives log-probabilities; they are kept with its candidates.")
    how = "It gives no log-probabilities" if answer.wants_logprobs else "It is not asked for log-probabilities"
    return skipped_line(Check.LOGPROBS, f"{how}; verifiers order its candidates.")


def failure_line(asked: AskedModel, *, code: str, fault: TeacherFault | None, message: str = "") -> PreflightLine:
    """The line of a call that failed; `code` is the failure's, `message` its own sentence, for what nothing here
    knows."""
    if fault is not None:
        code, finding, what_to_do = _fault_texts(asked, fault)
    elif code in _FAILURES:
        finding, what_to_do = _FAILURES[code]
    else:
        sentence = asked.in_its_words(message) or f"{_who(asked)} failed."
        what_to_do = asked.in_its_words("Check teacher.base_url and teacher.model.")
        return failed_line(asked.check, sentence, code=code, what_to_do=what_to_do)
    return failed_line(asked.check, f"{_who(asked)}: {finding}.", code=code, what_to_do=asked.in_its_words(what_to_do))


def slow_line(asked: AskedModel) -> PreflightLine:
    """The line of a call that was not waited for to its end: nothing is known, and a compile has more time."""
    what_to_do = (
        "Nothing where it is a model that thinks for long: a compile gives an answer two minutes, and more where it "
        "thinks. Else check host and port of teacher.base_url, and whether the server is busy."
    )
    sentence = f"{_who(asked)} did not answer the test within {DEADLINE_S:.0f} s; the compile asks again, patiently."
    return warning_line(asked.check, sentence, code=SLOW, what_to_do=asked.in_its_words(what_to_do))


def _longer_address(spec: Spec, fault: TeacherFault) -> str:
    """The address up to /v1, where the spec's is a host alone and something else answered there."""
    address = (spec.teacher.base_url or "").rstrip("/")
    return f" Here that may be {address}/v1." if fault in _ELSEWHERE and address.count("/") == 2 else ""


def _fault_texts(asked: AskedModel, fault: TeacherFault) -> tuple[str, str, str]:
    """The code, what was found and what to do; a reward model's own server speaks no chat completions."""
    text, reward = FAULT_TEXTS[fault], asked.reward
    if reward is None or reward.is_chat:
        return text.code, text.finding, text.what_to_do + _longer_address(asked.spec, fault)
    path = reward_api(reward.api).path
    check = f"Check teacher.base_url and the reward's api: {reward.api} is asked at {path} (/docs/rewards)."
    if fault is TeacherFault.NO_SUCH_PATH:
        return text.code, f"it knows no such model, or no path {path}", check
    if fault is TeacherFault.NOT_OPENAI:
        return text.code, f"it does not answer as {reward.api} does", check
    if fault is TeacherFault.OTHER_REFUSAL:
        return text.code, "it does not accept the request", check
    return text.code, text.finding, text.what_to_do


def _who(asked: AskedModel) -> str:
    teacher = asked.spec.teacher
    host = host_of(teacher.base_url)
    return f"The {asked.name} {teacher.model[:80]}" + (f" at {host}" if host else "")
