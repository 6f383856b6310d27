"""What a teacher is paid in `draft_pool`: a slice's fresh candidates, and the judge's requests."""

from dataclasses import dataclass, field

PROMPT = 208  # tokens, of a request for fresh candidates
CHOICES = 8  # a request
HEAD, SLICE_LINES = 350, 25  # tokens that each question of a compile begins with, and for each of its slices
ITEM = 4  # tokens of a draft in a question, besides its text
RUN = 4  # tokens of a run of accepted numbers
BEFORE_PROMPT, BEFORE_ITEM, BEFORE_VERDICT = 207, 5, 3  # of the questions before selection, a slice at a time
CONTROL_EVERY = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """Micro-USD a token, a candidate's tokens, and what the judge costs beside the teacher."""

    name: str
    input: float
    output: float
    length: int
    judge: float = 1.0

    @property
    def fresh(self) -> float:
        """F, of one candidate."""
        return self.length * self.output + PROMPT * self.input / CHOICES

    @property
    def verify(self) -> float:
        """V, of one more draft in a question after selection, its share of a control and of a run included."""
        return self.judge * ((self.length + ITEM) * (1 + 1 / CONTROL_EVERY) * self.input + RUN / 4 * self.output)

    @property
    def verify_before(self) -> float:
        return self.judge * ((self.length + BEFORE_ITEM) * self.input + BEFORE_VERDICT * self.output)

    def overhead(self, n_slices: int, n_with_drafts: int) -> float:
        """A slice's share of the compile's question."""
        tokens = HEAD + SLICE_LINES * n_slices + self.length + ITEM
        return self.judge * tokens * self.input / n_with_drafts

    def overhead_before(self, n_drafts: int) -> float:
        """The requests of one slice's question before selection."""
        n_requests = -(-n_drafts // CONTROL_EVERY)
        return self.judge * n_requests * (BEFORE_PROMPT + self.length + BEFORE_ITEM) * self.input


@dataclass(slots=True, kw_only=True)
class Spent:
    """Counts of one slice, or of a compile's questions. `text_in` are input tokens that do not depend on the
    candidates' length, `items` texts of that length in questions, `out` the judge's output tokens."""

    n_fresh: int = 0
    n_calls: int = 0
    text_in: float = 0.0
    items: float = 0.0
    out: float = 0.0

    def write(self, n: int) -> None:
        """Fresh candidates, in as few requests as can be."""
        self.n_fresh += n
        self.n_calls += -(-n // CHOICES)

    def judged(self, scenario: Scenario) -> float:
        tokens = self.text_in + self.items * scenario.length
        return scenario.judge * (tokens * scenario.input + self.out * scenario.output)

    def cost(self, scenario: Scenario) -> float:
        written = self.n_fresh * scenario.length * scenario.output + self.n_calls * PROMPT * scenario.input
        return written + self.judged(scenario)

    def __add__(self, other: "Spent") -> "Spent":
        return Spent(
            n_fresh=self.n_fresh + other.n_fresh,
            n_calls=self.n_calls + other.n_calls,
            text_in=self.text_in + other.text_in,
            items=self.items + other.items,
            out=self.out + other.out,
        )


@dataclass(slots=True, kw_only=True)
class Played:
    """One stream under one policy. `spent` has one entry a compile; of the drafts: asked about, accepted, of these bad;
    picked ones that are bad
    before and after the label votes, of all picks; picks that would be others if all had been asked about."""

    spent: list[Spent] = field(default_factory=list)
    n_asked: int = 0
    n_accepted: int = 0
    n_bad: int = 0
    n_picks: int = 0
    n_bad_picks: int = 0
    n_bad_after: int = 0
    n_displaced: int = 0
    n_pooled: int = 0
    n_turns: int = 0
