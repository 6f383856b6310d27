"""How a judge is asked, and how its answer is read."""

import json
import random
import re

from hypothesis import given
from hypothesis import strategies as st

from backend.domain.drafts.vocabulary import VerdictKind
from tests.workers.teachers.judges.simulated_judges import say
from workers.teachers.judges.batches import IDS, NO_DRAFT, Item, batch_of
from workers.teachers.prompts.candidate_and_label import DATA_RULE, unfence
from workers.teachers.prompts.judge import JUDGE_ASK, JUDGE_SYSTEM, judge_messages, read_verdicts
from workers.teachers.token_estimates import estimate_tokens

VERDICTS = st.dictionaries(st.sampled_from(IDS), st.booleans(), min_size=1, max_size=27)


@given(
    VERDICTS, st.sampled_from([None, 0, 2]), st.sampled_from([",", ", ", " ,\n", "\t,"]), st.booleans(), st.randoms()
)
def test_an_answer_is_read_whatever_its_order_and_white_space(
    verdicts: dict[str, bool], indent: int | None, comma: str, is_fenced: bool, rng: random.Random
) -> None:
    accepted = [id_ for id_, is_yes in verdicts.items() if is_yes]
    rng.shuffle(accepted)
    answer = json.dumps(accepted, indent=indent, separators=(comma, ":"))
    answer = f"```json\n{answer}\n```" if is_fenced else f"\n {answer}\r\n"
    assert read_verdicts(answer, list(verdicts)) == verdicts


@given(VERDICTS, st.text() | st.text('[] ",kxbd\n`'), st.integers(0, 2**32))
def test_what_an_answer_is_read_as_is_what_it_says(verdicts: dict[str, bool], noise: str, seed: int) -> None:
    """Any edit either reads as JSON would read it, or not at all."""
    rng = random.Random(seed)
    answer = say(verdicts)
    at = sorted(rng.sample(range(len(answer) + 1), 2))
    edited = answer[: at[0]] + noise + answer[at[rng.randrange(2)] :]
    read = read_verdicts(edited, list(verdicts))
    if read is not None:
        assert read.keys() == verdicts.keys()
        assert sorted(json.loads(edited)) == sorted(id_ for id_, is_yes in read.items() if is_yes)


@given(VERDICTS)
def test_what_an_answer_leaves_out_is_refused_and_nothing_else_changes(verdicts: dict[str, bool]) -> None:
    accepted = [id_ for id_, is_yes in verdicts.items() if is_yes]
    for n in range(len(accepted) + 1):
        assert read_verdicts(json.dumps(accepted[:n]), list(verdicts)) == {i: i in accepted[:n] for i in verdicts}


def test_the_example_of_the_instructions_is_no_answer() -> None:
    example = json.loads(JUDGE_SYSTEM[JUDGE_SYSTEM.index('["') : JUDGE_SYSTEM.index('"]') + 2])
    assert len(example) == 2
    assert not set(example) & set(IDS)
    assert read_verdicts(json.dumps(example), IDS[:26]) is None


def test_the_instructions_are_short() -> None:
    """They are paid with every batch where the prompt is below what vendors cache."""
    assert estimate_tokens(JUDGE_SYSTEM) <= 110
    assert DATA_RULE in JUDGE_SYSTEM


def test_ids_are_drawn_without_repeats_from_pairs_of_consonants() -> None:
    items = [Item(text=str(i), draft_id=NO_DRAFT, kind=VerdictKind.VERDICT, place=i) for i in range(27)]
    batches = [batch_of(items, random.Random(seed)) for seed in range(300)]
    assert all(len(batch.items) == 27 for batch in batches)
    assert {id_ for batch in batches for id_ in batch.items} == set(IDS)
    assert len(set(IDS)) == 400
    assert all(re.fullmatch("[b-df-hj-np-tv-xz]{2}", id_) for id_ in IDS)


@given(st.lists(st.text(alphabet=st.characters(exclude_categories=("Cs",)), max_size=60), min_size=1, max_size=6))
def test_drafts_stand_on_one_line_of_json_that_reads_back(texts: list[str]) -> None:
    drafts = dict(zip(IDS, texts, strict=False))
    _, user = judge_messages(["Task: t", "Labels: a"], ["Slice: s"], drafts)
    (shown,) = unfence(user.content)
    assert json.loads(shown) == [[id_, text] for id_, text in drafts.items()]
    assert "\n" not in shown
    assert not any(c in shown for c in "\u2028\u2029\u202e\u2066\x85\x7f")
    assert user.content.split("\n")[-1] == JUDGE_ASK


def test_the_prompts_beginning_does_not_depend_on_the_drafts() -> None:
    one, other = (
        judge_messages(["Task: t"], ["Slice: s", "Hint: h"], {"kx": text})[1].content for text in ("x", "~~~~")
    )
    assert one.startswith("Task: t\nSlice: s\nHint: h\nDrafts:\n~~~")
    assert other.startswith("Task: t\nSlice: s\nHint: h\nDrafts:\n~~~")
