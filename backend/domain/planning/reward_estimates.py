"""The cost of a spec's rewards, before they are asked for. A judge reads the rubric once a call and each candidate in
it; a reward model reads the question with every candidate and writes nothing."""

import math
from dataclasses import dataclass

from backend.domain.dialects.tools import VENDOR_TOKENS
from backend.domain.money.pricing import TeacherPrice
from backend.domain.planning.trial_estimates import BYTES_PER_TOKEN, Range, n_bytes
from backend.domain.spec.defaults import dialect_of, rewarded_by, thought_tokens
from backend.domain.spec.models import Spec
from backend.domain.spec.reward import RewardVerifier

RUBRIC_TOKENS = 130  # of the judge's system message beyond the other prompts', and of the default rubric
RATING_TOKENS = 6  # of a candidate in the answer, and of its id in the question
CONTROL_TOKENS = 40  # the line of random letters beside the candidates: few letters a token
TOOL_TOKENS = VENDOR_TOKENS + 100  # of a judge's tool, the control's rating with it
RATED_TOKENS = 15  # of a candidate in the tool
THOUGHT_SHARE = 4  # what is expected of a model's thoughts, as in `estimates`


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardPlan:
    """The number and size of the calls that give rewards. `prompt` are the tokens of the question without a
    candidate, `text` and `longest` those of a candidate, on the mean and at most."""

    spec: Spec
    asked: RewardVerifier
    price: TeacherPrice
    prompt: int
    text: int
    longest: int

    @property
    def question(self) -> int:
        rubric = 0 if self.asked.rubric is None else math.ceil(n_bytes(self.asked.rubric) / BYTES_PER_TOKEN)
        return self.prompt + rubric + (RUBRIC_TOKENS + self._tool if self.asked.is_chat else 0)

    @property
    def _tool(self) -> int:
        """Tokens of the tool whose arguments are the ratings, where the judge's dialect has one."""
        has_tool = dialect_of(rewarded_by(self.spec).teacher).has_tool
        return TOOL_TOKENS + RATED_TOKENS * self.per_call if has_tool else 0

    @property
    def per_call(self) -> int:
        return self.asked.per_call if self.asked.is_chat else 1

    @property
    def room(self) -> int:
        """Tokens that an answer may think."""
        return thought_tokens(rewarded_by(self.spec).teacher) if self.asked.is_chat else 0

    def range(self, sizes: tuple[int, ...]) -> Range:
        """Pools of these sizes, each asked about once; high: longest candidates, and each asked about again alone."""
        n, n_calls = sum(sizes), sum(-(-size // self.per_call) for size in sizes)
        expected = self._cost(n_calls, n, self.text, self.room // THOUGHT_SHARE)
        high = self._cost(n_calls, n, self.longest, self.room)
        if self.asked.is_chat:
            high += self._cost(n, n, self.longest, self.room)
        return Range(low=expected // 2, expected=expected, high=2 * high)

    def worst_batch(self) -> int:
        """Bound a call's tokens as the workers reserve it: every byte of the question a token."""
        shown = self.question + self.per_call * (self.longest + RATING_TOKENS) + CONTROL_TOKENS
        output = (RATING_TOKENS * (self.per_call + 2) + 16 + self.room) if self.asked.is_chat else 0
        width = rewarded_by(self.spec).teacher.concurrency
        return width * self.price.most_microusd(input_tokens=BYTES_PER_TOKEN * shown, output_tokens=output)

    def _cost(self, n_calls: int, n: int, text: int, thoughts: int) -> int:
        shown = n * (text + (RATING_TOKENS if self.asked.is_chat else 0))
        extra = n_calls * (self.question + (CONTROL_TOKENS + RATING_TOKENS if self.asked.is_chat else 0))
        output = n * RATING_TOKENS + n_calls * (RATING_TOKENS + thoughts) if self.asked.is_chat else 0
        return self.price.cost_microusd(input_tokens=shown + extra, output_tokens=output)

    def assumption(self, n: int) -> str:
        """One line on what is asked."""
        what = f"{self.per_call} candidates a call" if self.asked.is_chat else "one candidate a call"
        return f"rewards for {n} candidates by {self.price.model}: {self.question} prompt tokens and {what}"
