"""The calls that a compile will make of its teacher: how many and how long, what each step's cost at least, as expected
and at most, and the sentences that say what was assumed.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from backend.domain.labeling.votes_again import PILOT_ROWS, PILOT_VOTES
from backend.domain.money.pricing import TeacherPrice
from backend.domain.money.teacher_prices import is_free
from backend.domain.planning.label_plans import first_captures, k_of_captures, writes_more
from backend.domain.planning.reward_estimates import RewardPlan
from backend.domain.planning.trial_estimates import BYTES_PER_TOKEN, Range, own_answers, recipes_cost
from backend.domain.planning.trials import most_trials
from backend.domain.spec.defaults import (
    SliceSize,
    buys_in_rounds,
    dialect_of,
    first_votes,
    label_max_tokens,
    most_votes,
    n_distilled,
    reward_of,
    thought_tokens,
    votes_as_needed,
)
from backend.domain.spec.models import Spec
from backend.domain.spec.outputs import LabelOutput, TextOutput

CHOICES_PER_CALL = 8  # candidates asked for in one call
HALVES_SHOWN = 6  # texts in the question that names the halves of a slice
NAMING_TOKENS = 400  # its longest answer
MAX_REACTIONS = 4  # exemplars, hotter, hotter, fallback model; each asks for N/2 more
THOUGHT_SHARE = 4  # what is expected of a model's thoughts: this part of the room that is left for them
TEACHER_ROWS = 100  # held-out inputs that the teacher answers too, where the spec says nothing
TEACHER_BUDGET_SHARE = 20  # and a twentieth of the budget at most
MEAN_VOTES_PERCENT = 125  # of a vote, that an input asked again only where unsure is expected to take: not measured
VERDICT_TOKENS = 8  # a judge's longest answer about two texts, as workers.teachers asks for it


@dataclass(frozen=True, slots=True, kw_only=True)
class TeacherPlan:
    """The number and size of the calls that the teacher will get. `slices` are those that it fills."""

    spec: Spec
    slices: Sequence[SliceSize]
    price: TeacherPrice
    batch: TeacherPrice  # of a call of synthesis and labelling: what it costs in a batch, in batch mode
    dearest: TeacherPrice  # of the model and its fallback, which may write candidates
    n_captures: int
    prompt_candidate: int
    prompt_label: int
    mean_output: int
    label_output: int  # of an answer
    embedded: float  # of an input, by the embedder's tokenizer
    longest_candidate: int  # prompts in tokens of four bytes
    longest_prompt: int
    reward_price: TeacherPrice | None = None  # of a spec with a reward

    @property
    def reward(self) -> RewardPlan | None:
        """The calls that give rewards, where some do."""
        asked = reward_of(self.spec)
        if asked is None or self.reward_price is None:
            return None
        longest = min(3 * self.mean_output, self.spec.sampling.candidate_max_tokens)
        return RewardPlan(
            spec=self.spec,
            asked=asked,
            price=self.reward_price,
            prompt=self.prompt_candidate,
            text=self.mean_output,
            longest=longest,
        )

    def rewards(self) -> tuple[Range, Range]:
        """Return what rewards cost when candidates are verified, and for those that selection may ask for later."""
        plan = self.reward
        if plan is None:
            return Range(low=0, expected=0, high=0), Range(low=0, expected=0, high=0)
        extra = sum(MAX_REACTIONS * -(-size // 2) for size in self.pools)  # what synthesis may add to its pools
        first, more = plan.range((*self.pools, self.n_captures)), plan.range((extra,))
        later = plan.range((self.most_mitigated,))
        return replace(first, high=first.high + more.high), Range(low=0, expected=0, high=later.high)

    @property
    def pools(self) -> tuple[int, ...]:
        """N of each slice."""
        return tuple(size.n for size in self.slices)

    @property
    def per_call(self) -> int:
        """Choices that one call for candidates gives at most."""
        return min(CHOICES_PER_CALL, dialect_of(self.spec.teacher).max_n)

    @property
    def label_calls(self) -> int:
        """Calls that the first labels of one pick take."""
        return -(-first_votes(self.spec) // dialect_of(self.spec.teacher).max_n)

    @property
    def room(self) -> int:
        """Tokens that a choice may think."""
        return thought_tokens(self.spec.teacher)

    @property
    def thoughts(self) -> int:
        """Tokens that a choice is expected to think."""
        return self.room // THOUGHT_SHARE

    @property
    def n_picks(self) -> int:
        """Inputs that are labelled: those that selection keeps, or where `plan: auto` decides how many, all of them
        unless the spec names a K."""
        written = sum(self.pools) if self._is_all_bought else sum(size.k for size in self.slices)
        return written + k_of_captures(self.spec, self.n_captures)

    @property
    def n_start(self) -> int:
        """Inputs that are labelled in any case."""
        if self.spec.sampling.method == "all":
            return self.n_picks
        return sum(size.k for size in self.slices) + first_captures(self.spec, self.n_captures)

    @property
    def _is_all_bought(self) -> bool:
        is_open = buys_in_rounds(self.spec) and self.spec.sampling.k_select is None
        return is_open or self.spec.sampling.method == "all"

    @property
    def n_pairs(self) -> int:
        """Picks that train, as `workers.training.training_set` chooses them."""
        return n_distilled(self.spec.sampling.k_distill, self.n_picks)

    @property
    def n_more(self) -> int:
        """Candidates that the plan may have written once labels are known: two rounds of N/2 a slice, or of the halves
        that it was split into."""
        if not writes_more(self.spec):
            return 0
        splits = "split_slice" in self.spec.sampling.on_gap
        return sum(2 * (-(-size // 2) + splits) for size in self.pools)

    @property
    def most_pairs(self) -> int:
        """Picks that train, with those that the plan may have written."""
        return n_distilled(self.spec.sampling.k_distill, self.n_picks + self.n_more)

    def preflight(self) -> Range:
        """One tiny call of each model at an endpoint, about a text that says it is a test; none where it answered
        another compile some minutes ago."""
        teacher = self.spec.teacher
        if teacher.provider != "openai_compatible":
            return Range(low=0, expected=0, high=0)
        cost = self._cost(self.prompt_label, self.label_output)
        if teacher.fallback_model is not None:
            cost += self._cost(self.prompt_candidate, self.mean_output)
        return Range(low=0, expected=cost, high=4 * cost + self._cost(0, self.room))

    def synthesis(self) -> Range:
        n = sum(self.pools)
        n_calls = sum(-(-size // self.per_call) for size in self.pools)
        most = sum(size + MAX_REACTIONS * -(-size // 2) for size in self.pools)
        return Range(
            low=self._batch_cost(n_calls * self.prompt_candidate // 2, n * self.mean_output // 2),
            expected=self._batch_cost(n_calls * self.prompt_candidate, n * (self.mean_output + self.thoughts)),
            high=self._candidates_high(most),
        )

    @property
    def most_mitigated(self) -> int:
        """Candidates that selection may ask for: N/2 a round of resynthesis, N again for the halves of a slice, whose
        own rounds are rounded up one by one."""
        sampling = self.spec.sampling
        splits = "split_slice" in sampling.on_gap
        n_rounds = sampling.resynthesis_rounds if "resynthesize" in sampling.on_gap else 0
        return sum(n_rounds * (-(-size // 2) + splits) + splits * size for size in self.pools)

    def mitigations(self) -> Range:
        """Return what selection may ask of the teacher; nothing is expected of it."""
        n_named = len(self.pools) if "split_slice" in self.spec.sampling.on_gap else 0
        shown = HALVES_SHOWN * max(self.mean_output, self.spec.sampling.candidate_max_tokens)
        named = self._cost(n_named * 2 * (self.prompt_candidate + shown), n_named * NAMING_TOKENS)
        return Range(low=0, expected=0, high=self._candidates_high(self.most_mitigated) + named)

    def _candidates_high(self, n: int) -> int:
        """One choice a call, longest answers, at the fallback model's price where that is higher."""
        longest = min(3 * self.mean_output, self.spec.sampling.candidate_max_tokens)
        return self.dearest.cost_microusd(
            input_tokens=2 * n * self.prompt_candidate, output_tokens=n * (longest + self.room)
        )

    def labeling(self) -> Range:
        """The cost of votes, and at most of further candidates. A vote that is bought as needed is a call of its
        own."""
        n, k, most = self.n_picks, first_votes(self.spec), most_votes(self.spec)
        least = -(-self.n_start // 2) if n else 0  # drop_k may leave fewer
        n_most = n + self.n_more
        again = n * (MEAN_VOTES_PERCENT - 100) // 100 if votes_as_needed(self.spec) else 0
        of_pilot = (PILOT_VOTES - 1) * min(n, PILOT_ROWS) if self.has_pilot else 0
        return Range(
            low=self._batch_cost(least * self.prompt_label // 2, least * k * self.least_answer),
            expected=self._batch_cost(
                (n * self.label_calls + again) * self.prompt_label,
                (n * k + again + of_pilot) * (self.label_output + self.thoughts),
            ),
            high=self._candidates_high(self.n_more)
            + self._cost(
                2 * n_most * most * self.prompt_label, n_most * most * (label_max_tokens(self.spec) + self.room)
            ),
        )

    @property
    def has_pilot(self) -> bool:
        """Some of the first picks are asked for several answers by their call."""
        teacher = self.spec.teacher
        is_asked = votes_as_needed(self.spec) and teacher.provider != "replay" and not self.room
        return is_asked and dialect_of(teacher).max_n >= PILOT_VOTES

    @property
    def least_answer(self) -> int:
        """Half of what is expected, but of a label one token."""
        return 1 if isinstance(self.spec.output, LabelOutput) else max(1, self.label_output // 2)

    @property
    def prompt_verdict(self) -> int:
        """The task, the input and two answers."""
        return self.prompt_label + 2 * self.label_output

    def judging(self, n_heldout: int) -> Range:
        """Two verdicts a held-out answer, for every trial; none where the spec's accuracy needs no judge. Answers equal
        to gold, or that fail a check, are not asked about."""
        if not (isinstance(self.spec.output, TextOutput) and self.spec.output.accuracy == "judge"):
            return Range(low=0, expected=0, high=0)
        n = 2 * n_heldout
        longest = self.prompt_label + 2 * label_max_tokens(self.spec)
        n_trials = most_trials(self.spec)
        return Range(
            low=self._cost(n * self.prompt_verdict // 4, n // 2),
            expected=self._cost(n * self.prompt_verdict, n * (2 + self.thoughts)),
            high=n_trials * self._cost(2 * n * longest, n * (VERDICT_TOKENS + self.room)),
        )

    def teacher_rows(self, n_heldout: int) -> int:
        """The number of held-out inputs that the teacher answers, beside the model: as the spec says, else up to
        TEACHER_ROWS for a twentieth of the budget. A text that a judge compares is not asked for: the judge is the
        teacher."""
        if isinstance(self.spec.output, TextOutput) and self.spec.output.accuracy == "judge":
            return 0
        asked = self.spec.evaluation.teacher_rows
        if asked is not None:
            return min(asked, n_heldout)
        if self.spec.teacher.provider == "replay":
            return 0
        affordable = self.spec.budget.microusd // TEACHER_BUDGET_SHARE // max(1, self.answering(1).expected)
        return min(TEACHER_ROWS, n_heldout, affordable)

    def answering(self, n: int) -> Range:
        """The teacher's own answers to `n` held-out inputs; where the budget has nothing left, it is not asked."""
        return Range(
            low=0,
            expected=self._cost(n * self.prompt_label, n * (self.label_output + self.thoughts)),
            high=self._cost(2 * n * self.prompt_label, n * (label_max_tokens(self.spec) + self.room)),
        )

    @property
    def n_own(self) -> int:
        """Answers of the student that the teacher is asked about, in each trial."""
        return own_answers(self.spec, self.n_pairs)

    def scoring(self) -> Range:
        """The log-probs of the student's own answers: read by the teacher as a part of its prompt, one token written
        by its server."""
        n, length = self.n_own, self.prompt_label + self.label_output
        longest = 2 * self.prompt_label + label_max_tokens(self.spec)
        return Range(
            low=self._cost(n * length // 2, n // 2),
            expected=self._cost(n * length, n),
            high=most_trials(self.spec) * self._cost(n * longest, n),
        )

    def worst_batch(self) -> int:
        """Bound a call's tokens as the workers reserve it: every byte of the prompt a token, at the dearest price that
        input may have, every choice as long as allowed."""
        width = self.spec.teacher.concurrency
        calls = (
            [(self.longest_prompt, self._labels_a_call * (label_max_tokens(self.spec) + self.room))]
            if self.n_picks
            else []
        )
        if self.pools:
            n = min(self.per_call, max(self.pools))
            calls.append((self.longest_candidate, n * (self.spec.sampling.candidate_max_tokens + self.room)))
        if isinstance(self.spec.output, TextOutput) and self.spec.output.accuracy == "judge":
            calls.append((self.longest_prompt + 2 * label_max_tokens(self.spec), VERDICT_TOKENS + self.room))
        if self.n_own:
            calls.append((self.longest_prompt + label_max_tokens(self.spec), 1))
        teacher = max(
            width * self.dearest.most_microusd(input_tokens=BYTES_PER_TOKEN * prompt, output_tokens=output)
            for prompt, output in calls
        )
        return teacher if self.reward is None else max(teacher, self.reward.worst_batch())

    @property
    def _labels_a_call(self) -> int:
        return min(most_votes(self.spec), dialect_of(self.spec.teacher).max_n)

    def _cost(self, input_tokens: int, output_tokens: int) -> int:
        return self.price.cost_microusd(input_tokens=input_tokens, output_tokens=output_tokens)

    def _batch_cost(self, input_tokens: int, output_tokens: int) -> int:
        return self.batch.cost_microusd(input_tokens=input_tokens, output_tokens=output_tokens)

    @property
    def _votes_assumed(self) -> str:
        k, most = first_votes(self.spec), most_votes(self.spec)
        if not votes_as_needed(self.spec):
            return f"{k} label samples a pick"
        first = f"{k} label sample a pick" + (f", {PILOT_VOTES} of the first {PILOT_ROWS}" if self.has_pilot else "")
        return f"{first}; {MEAN_VOTES_PERCENT / 100:g} calls expected on the mean, and {most} answers at most"

    @property
    def batch_window_h(self) -> int | None:
        terms = dialect_of(self.spec.teacher).batch
        return terms.window_h if terms is not None and self.spec.teacher.mode == "batch" else None

    def assumptions(self, n_gold_train: int, teacher_rows: int) -> Iterator[str]:
        n, n_slices = sum(self.pools), len(self.pools)
        yield f"{n} candidates in {n_slices} slices, {self.n_captures} captures, {self.n_picks} picks"
        if buys_in_rounds(self.spec):
            yield (
                f"{self.n_start} picks are labelled in any case, {self.n_picks} are expected, in rounds and while a "
                "point of accuracy is worth what it costs (plan)"
            )
        if self.n_more:
            yield (
                f"up to {self.n_more} more candidates for slices that lose (plan.more_candidates): none are expected, "
                "high has them with their labels and the training on them"
            )
        yield f"{self._votes_assumed}; {n_gold_train} gold pairs train besides the selected ones"
        yield f"{self.prompt_candidate} prompt tokens and {self.mean_output} a choice, {self.per_call} a call"
        yield f"{self.prompt_label} prompt tokens a label call and {self.label_output} an answer"
        if is_free(self.price) and self.spec.teacher.provider != "replay":
            yield f"{self.price.model} is free: its calls are counted and booked at 0, so no budget stops them"
        if self.batch_window_h is not None:
            yield (
                f"{self.batch.listing.note}; at least {bool(self.pools) + bool(self.n_picks)} batches one after the "
                f"other, each answered within {self.batch_window_h} h, often sooner; a further one for every round of "
                "candidates that is asked for again, and for what a batch left unanswered"
            )
            yield "the first call of a step, verdicts, extra rounds of selection, and the high bounds at the live price"
        if self.reward is not None:
            yield self.reward.assumption(n + self.n_captures)
        if self.room:
            yield f"up to {self.room} tokens of thought an answer, {self.thoughts} expected (assumed, not measured)"
        yield "runners are billed by the tokens that they train on, read and write, whatever machine they run on"
        if self.n_own:
            yield f"the teacher tells the log-probs of {self.n_own} answers of the student (train.causal.on_policy)"
        if recipes_cost(self.spec).high:
            budget_s = self.spec.recipes.budget_s
            yield f"a recipe pack where the gate is passed: up to {budget_s:g} s of measuring what drafts"
        if teacher_rows:
            yield f"the teacher answers {teacher_rows} held-out inputs too (evaluation.teacher_rows)"
        yield f"at most {most_trials(self.spec)} trials; those after the first count in the evaluation's high bound"
        yield "low: half the tokens and half the picks"
        yield (
            "high: every retry for poor candidates and every round that on_gap allows, one choice a call, longest "
            "answers, four times the tokens for a runner"
        )
