"""A vendor that writes as the grammar does writes the same in every run, and labels as it is asked to."""

from backend.domain.dialects.table import BY_NAME as DIALECTS
from backend.domain.spec.defaults import effective_slices
from backend.domain.spec.parsing import Spec
from tests.workers.teachers.grammar_writer import written_by
from tests.workers.teachers.strict_vendors import BY_NAME
from workers.teachers.grammar.model import GrammarModel
from workers.teachers.grammar.pcfg import Grammar
from workers.teachers.openai_compatible.bodies import chat_body
from workers.teachers.prompts.answer import item_request
from workers.teachers.prompts.candidate_and_label import candidate_request
from workers.teachers.protocol import TeacherCaps

UNCLEAR = "hello"  # any label may be drawn for it


def run(spec: Spec, grammar: Grammar, *, heat: float) -> list[list[str]]:
    """The texts of three calls for candidates and two for labels of one input, these at a temperature."""
    vendor = BY_NAME["mistral"]
    endpoint = written_by(vendor, GrammarModel(grammar))
    write = candidate_request(spec, effective_slices(spec)[0], n=4, temperature=1.0, seed=None)
    label = item_request(spec, UNCLEAR, n=20, temperature=heat, seed=None)
    texts = []
    for request in (write, write, write, label, label):
        status, body = endpoint.answer(chat_body(request, vendor.model, TeacherCaps(), DIALECTS["mistral"]))
        assert status == 200
        texts.append([choice["message"]["content"] for choice in body["choices"]])
    return texts


def test_two_runs_of_a_vendor_write_the_same_texts_and_two_turns_do_not(spec: Spec, grammar: Grammar) -> None:
    first, second = run(spec, grammar, heat=1.0), run(spec, grammar, heat=1.0)
    assert first == second
    assert first[0] != first[1] != first[2]


def test_a_vendors_labels_are_drawn_at_the_temperature_that_is_asked(spec: Spec, grammar: Grammar) -> None:
    *_, cold, _ = run(spec, grammar, heat=0.0)
    *_, hot, _ = run(spec, grammar, heat=1.0)
    assert len(set(cold)) == 1 < len(set(hot))
