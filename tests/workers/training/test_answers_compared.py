"""What else of the product answers: an ablation of a json compile is compared by rows that are right, and the teacher
in the playground answers as it does when it labels."""

from backend.compiles.lifecycle.ablations import _marks
from backend.domain.spec.parsing import parse_spec
from tests.compile_factories import small_spec
from tests.workers.answer_helpers import TEXTS, json_answer, json_spec, text_answer, text_spec
from workers.training.votes import agree, valid_answers

TEXT = TEXTS[0]


def test_an_ablation_of_a_json_task_compares_whether_answers_equal_gold():
    spec = parse_spec(small_spec(**json_spec()))
    gold = [json_answer(text) for text in TEXTS[:3]]
    same_value = '{"urgent":false,"subject":"The parcel"}'
    ours, theirs = {"predictions": [same_value, "{", gold[2]]}, {"predictions": [gold[0], gold[0], "{}"]}
    truth, mine, others = _marks(spec, gold, ours, theirs)
    assert truth == ["right"] * 3
    assert (mine, others) == (["right", "wrong", "right"], ["right", "wrong", "wrong"])


def test_an_ablation_of_a_text_task_compares_verdicts_or_checks():
    spec = parse_spec(small_spec(**text_spec()))
    judged = {"predictions": ["a", "b", "c"], "failed": [[], [], []], "verdicts": ["win", "tie", "loss"]}
    checked = {"predictions": ["a", "b", "c"], "failed": [[], ["length"], []]}
    _, mine, others = _marks(spec, ["x", "y", "z"], judged, checked)
    assert (mine, others) == (["right", "right", "wrong"], ["right", "wrong", "right"])


def test_the_playground_tells_valid_answers_from_others_and_takes_the_commonest():
    spec = parse_spec(small_spec(**json_spec()))
    said = [json_answer(TEXT), f"```json\n{json_answer(TEXT)}\n```", '{"subject": "Zebra", "urgent": true}', "I think"]
    spelt = '{"subject": "The parcel", "urgent": false}'
    assert valid_answers(spec, TEXT, said) == [spelt, spelt, None, None]
    (agreed,) = agree(spec, [(TEXT, said)])
    assert (agreed.answer, agreed.votes, agreed.agreement_ppm) == (spelt, {spelt: 2}, 500_000)
    assert agreed.reasons == ["copied /subject", "unreadable"]


def test_what_every_answer_to_a_text_is_cut_to_is_bounded():
    spec = parse_spec(small_spec(**text_spec()))
    said = [f"{text_answer(TEXT)} {'word ' * n}" for n in range(10)]
    (agreed,) = agree(spec, [(TEXT, said)])
    assert len(agreed.votes) <= 8
    assert all(len(text) <= 200 for text in agreed.votes)
