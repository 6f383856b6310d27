import io
import json
import random

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from backend.domain.errors import InvalidInput
from backend.domain.source_data.columns import ColumnMapping
from backend.domain.source_data.conversations import RecordShape
from backend.domain.source_data.json_schema import infer_schema
from backend.domain.source_data.profile import TaskKind
from backend.domain.source_data.reading import read_records, records_of
from backend.domain.source_data.source import Source, look_at
from backend.domain.source_data.spec_draft import DEMO_TEACHER, DraftOptions, draft_spec, guess_task, slug_of
from backend.domain.spec.parsing import parse_spec


def source(rows: list[dict], mapping: ColumnMapping | None = None, kind: TaskKind | None = None) -> Source:
    return look_at(records_of(rows), mapping=mapping, kind=kind)


def pairs(of: Source) -> list[tuple[str, str | None]]:
    return [(row.input, row.output) for row in of.rows]


TICKETS = [{"id": n, "ticket_text": f"where is order {n}", "ticket_category": "ab"[n % 2]} for n in range(60)]


@pytest.mark.parametrize(
    ("columns", "inputs", "output"),
    [
        (("text", "label"), ("text",), "label"),
        (("Message", "Intent"), ("Message",), "Intent"),
        (("id", "ticket_text", "ticket_category"), ("ticket_text",), "ticket_category"),
        (("customerMessage", "sentimentLabel"), ("customerMessage",), "sentimentLabel"),
        (("subject", "body", "queue"), ("subject", "body"), "queue"),
        (("prompt", "completion"), ("prompt",), "completion"),
        (("question", "answer"), ("question",), "answer"),
        (("description", "category_id", "category"), ("description",), "category"),
        (("input", "output"), ("input",), "output"),
        (("Frage", "Klasse"), ("Frage",), "Klasse"),
    ],
)
def test_columns_are_mapped_by_their_names_or_by_what_stands_in_them(
    columns: tuple[str, ...], inputs: tuple[str, ...], output: str
) -> None:
    def cell(name: str, n: int) -> object:
        if name in ("id", "category_id"):
            return n
        return ("north", "south")[n % 2] if name == output else f"a longer text about matter number {n}"

    rows = [{name: cell(name, n) for name in columns} for n in range(60)]
    mapping = source(rows).mapping
    assert (mapping.inputs, mapping.output) == (inputs, output)


def test_a_group_and_a_split_are_recognised_and_kept() -> None:
    rows = [
        {"text": f"text {n}", "label": "ab"[n % 2], "ticket_id": f"t{n // 2}", "split": "train" if n < 40 else "test"}
        for n in range(60)
    ]
    looked = source(rows)
    assert (looked.mapping.group, looked.mapping.split) == ("ticket_id", "split")
    assert looked.profile.n_heldout == 20
    assert looked.rows[41].to_json() == {"input": "text 41", "output": "b", "group": "t20", "split": "heldout"}


def test_a_part_for_validation_is_held_out_only_where_there_is_no_test() -> None:
    def rows(*words: str) -> list[dict]:
        return [{"text": f"text {n}", "label": "ab"[n % 2], "split": words[n % len(words)]} for n in range(30)]

    assert source(rows("train", "validation")).profile.n_heldout == 15
    assert source(rows("train", "validation", "test")).profile.n_heldout == 10


def test_labels_have_counts_shares_and_one_spelling() -> None:
    words = ["Refund", "Refund", "refund", "REFUND ", "other", "other"]
    looked = source([{"text": f"text {n}", "label": word} for n, word in enumerate(words * 5)])
    assert [(label.name, label.n, label.share_ppm) for label in looked.profile.labels] == [
        ("Refund", 20, 666_667),
        ("other", 10, 333_333),
    ]
    assert set(looked.profile.spellings) == {"refund", "REFUND"}


def test_duplicates_contradictions_and_leaks_are_counted() -> None:
    rows = [
        {"text": "where is my refund", "label": "status", "split": "train"},
        {"text": "Where is my refund?", "label": "status", "split": "train"},
        {"text": "WHERE is my refund", "label": "request", "split": "train"},
        {"text": "where is my refund", "label": "status", "split": "test"},
        {"text": "send it back please", "label": "request", "split": "test"},
    ] + [{"text": f"other text {n}", "label": "request", "split": "train"} for n in range(40)]
    profile = source(rows).profile
    assert profile.n_duplicates == 2
    assert profile.n_conflicting == 4
    assert profile.conflicts[0].answers == (("status", 3), ("request", 1))
    assert profile.leaks is not None
    assert profile.leaks.n_heldout_touched == 1


def test_a_file_that_is_made_to_be_slow_is_looked_at_in_bounded_time() -> None:
    """Texts that share every shingle: all pairs would be compared, 8,000 against 8,000 in five minutes."""
    draw, words = random.Random(1), ("alpha", "bravo", "charl", "delta", "echos", "foxtr", "golfs", "hotel")
    rows = [
        {
            "text": " ".join(draw.choice(words) for _ in range(40)),
            "label": "ab"[n % 2],
            "split": ("train", "test")[n % 2],
        }
        for n in range(16_000)
    ]
    leaks = source(rows).profile.leaks
    assert leaks is not None
    assert leaks.n_train + leaks.n_heldout < 6_000
    assert leaks.is_partial


def test_twenty_bad_rows_are_one_reason_with_examples() -> None:
    rows = TICKETS + [{"id": n, "ticket_text": "", "ticket_category": "a"} for n in range(20)]
    (group,) = source(rows).profile.problems
    assert (group.reason, group.n, len(group.examples)) == ("has no input", 20, 3)
    assert group.examples[0].number == 61


@pytest.mark.parametrize(
    ("row", "shape", "pair"),
    [
        (
            {"messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "U"}]},
            RecordShape.CHATS,
            ("U", None),
        ),
        (
            {"messages": [{"role": "user", "content": "U"}, {"role": "assistant", "content": "A"}]},
            RecordShape.CHATS,
            ("U", "A"),
        ),
        (
            {
                "messages": [
                    {"role": "user", "content": [{"type": "text", "text": "U"}]},
                    {
                        "role": "assistant",
                        "content": None,
                        "tool_calls": [{"function": {"name": "f", "arguments": '{"a": 1}'}}],
                    },
                ]
            },
            RecordShape.CHATS,
            ("U", '{"a": 1}'),
        ),
        (
            {"conversations": [{"from": "human", "value": "U"}, {"from": "gpt", "value": "A"}]},
            RecordShape.CHATS,
            ("U", "A"),
        ),
        (
            {
                "object": "chat.completion",
                "messages": [{"role": "user", "content": "U"}],
                "choices": [{"message": {"role": "assistant", "content": "A"}}],
            },
            RecordShape.COMPLETIONS,
            ("U", "A"),
        ),
        (
            {
                "traceId": "t",
                "input": [{"role": "user", "content": "U"}],
                "output": {"role": "assistant", "content": "A"},
            },
            RecordShape.TRACES,
            ("U", "A"),
        ),
        ({"trace_id": "t", "input": '{"question": "U"}', "output": '"A"'}, RecordShape.TRACES, ("U", "A")),
        (
            {
                "id": "t",
                "input": '{"messages": [{"role": "user", "content": "U"}]}',
                "output": '{"role": "assistant", "content": "A"}',
            },
            RecordShape.TRACES,
            ("U", "A"),
        ),
        ({"inputs": {"question": "U"}, "outputs": {"answer": "A"}, "id": "r"}, RecordShape.RUNS, ("U", "A")),
        (
            {
                "inputs": {
                    "messages": [[{"lc": 1, "id": ["langchain", "schema", "HumanMessage"], "kwargs": {"content": "U"}}]]
                },
                "outputs": {"generations": [[{"text": "A"}]]},
            },
            RecordShape.RUNS,
            ("U", "A"),
        ),
        (
            {
                "inputs": {"messages": [{"type": "human", "data": {"content": "U"}}]},
                "outputs": {"messages": [{"type": "ai", "data": {"content": "A"}}]},
            },
            RecordShape.RUNS,
            ("U", "A"),
        ),
    ],
)
def test_chats_completions_and_traces_are_inputs_with_answers(row: dict, shape: RecordShape, pair: tuple) -> None:
    looked = source([row] * 3)
    assert looked.shape is shape
    assert pairs(looked)[0] == pair


def test_a_chat_of_several_turns_is_the_conversation_before_its_last_answer() -> None:
    turns = [("user", "hi"), ("assistant", "hello"), ("user", "where is it"), ("assistant", "status")]
    looked = source([{"messages": [{"role": role, "content": text} for role, text in turns]}])
    assert pairs(looked) == [("user: hi\nassistant: hello\nuser: where is it", "status")]


def test_the_system_prompt_of_most_chats_is_the_task() -> None:
    chat = {"messages": [{"role": "system", "content": "Route tickets."}, {"role": "user", "content": "U"}]}
    assert guess_task(source([chat] * 5)) == "Route tickets."


@pytest.mark.parametrize(
    ("rows", "task"),
    [
        (TICKETS, "Decide the ticket_category of a ticket_text: a, b."),
        ([{"input": f"text {n}", "output": "ab"[n % 2]} for n in range(60)], "Decide the label of a text: a, b."),
        ([{"email": f"text {n}", "label": "ab"[n % 2]} for n in range(60)], "Decide the label of an email: a, b."),
        ([{"input": f"text {n}", "output": f'{{"n": {n}}}'} for n in range(60)], "Extract the fields from a text."),
    ],
)
def test_the_first_sentence_of_a_task_is_english(rows: list[dict], task: str) -> None:
    assert guess_task(source(rows)) == task


def test_stored_completions_without_what_was_asked_say_so() -> None:
    looked = source([{"object": "chat.completion", "choices": [{"message": {"content": "A"}}]}] * 3 + [{"messages": 1}])
    assert "export stored completions with what was asked" in looked.profile.problems[0].reason


def test_numbers_of_classes_become_their_names() -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="needs the extra `data`")
    from pyarrow import parquet

    features = {"label": {"names": ["neg", "pos"], "_type": "ClassLabel"}}
    table = pyarrow.table({"text": [f"text {n}" for n in range(40)], "label": [n % 2 for n in range(40)]})
    table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    sink = io.BytesIO()
    parquet.write_table(table, sink)
    sink.seek(0)
    assert {label.name for label in look_at(read_records(sink)).profile.labels} == {"neg", "pos"}


@pytest.mark.parametrize(
    ("answers", "kind"),
    [
        (["a", "b"] * 20, TaskKind.LABEL),
        (['{"total": 1}'] * 20, TaskKind.JSON),
        ([f"A sentence of its own, number {n}." for n in range(20)], TaskKind.TEXT),
        ([f"a label of its own {n}" for n in range(1_000)] * 2, TaskKind.LABEL),
    ],
)
def test_the_kind_of_task_follows_from_its_answers(answers: list[str], kind: TaskKind) -> None:
    rows = [{"text": f"text {n}", "output": answer} for n, answer in enumerate(answers)]
    assert source(rows).profile.kind is kind


def test_a_thousand_labels_are_said_to_be_too_many() -> None:
    rows = [{"text": f"text {n}", "label": f"label {n % 1000}"} for n in range(3_000)]
    looked = source(rows)
    assert len(looked.profile.labels) == 1_000
    assert any("1,000 different labels" in warning for warning in looked.profile.warnings)
    assert "744 rarer labels" in draft_spec(looked, OPTIONS)


def test_an_unknown_column_is_named_with_those_there_are() -> None:
    with pytest.raises(InvalidInput, match="ticket_text"):
        source(TICKETS, ColumnMapping(inputs=("message",)))


def test_a_name_of_a_person_outside_the_task_is_no_input() -> None:
    rows = [{"text": f"text {n}", "author": "ab"[n % 2], "label": "xy"[n % 2]} for n in range(40)]
    assert source(rows).mapping == ColumnMapping(inputs=("text",), output="label", group="author")


OPTIONS = DraftOptions(name="tickets", task="Route tickets.", teacher=DEMO_TEACHER, file="tickets.csv")
UPLOAD = "upl_01ktfz2x8e4s1c9w0m5q7r3vbd"


def uploaded(looked: Source, **changes: object) -> dict:
    options = {"name": "tickets", "task": "Route tickets.", "teacher": DEMO_TEACHER, "upload": UPLOAD, **changes}
    return yaml.safe_load(draft_spec(looked, DraftOptions(**options)))


def test_the_spec_of_a_table_is_short_valid_and_says_what_to_add() -> None:
    text = draft_spec(source(TICKETS), DraftOptions(name="t", task="Route.", teacher=DEMO_TEACHER, upload=UPLOAD))
    assert len(text.splitlines()) < 30
    assert "such as: where is order" in text
    spec = parse_spec(yaml.safe_load(text))
    assert spec.examples.upload == UPLOAD


def test_the_spec_of_json_answers_has_their_schema() -> None:
    rows = [{"text": f"order {n} please", "output": {"order": str(n), "kind": "ab"[n % 2]}} for n in range(40)]
    spec = parse_spec(uploaded(source(rows)))
    assert spec.output.type == "json"
    assert spec.output.answer_schema["properties"]["kind"] == {"type": "string", "enum": ["a", "b"]}


def test_inputs_without_answers_become_captures() -> None:
    document = uploaded(source([{"text": f"text {n}"} for n in range(50)]))
    assert document["captures"] == {"upload": UPLOAD}
    assert document["examples"] == {"inline": []}


HOSTILE = [
    *(
        "yes",
        "no",
        "null",
        "# not a comment",
        "a: b",
        "- x",
        "{}",
        "*a",
        "!x",
        "'",
        '"',
        "\u2028line",
        "=1+1",
        "💥 refund",
    ),
    *("مرحبا", "\u202eevil", "<script>alert(1)</script>", "%TAG", "0x1F", "1e3", "~", "@x", "`x`", "a\\b", "é"),
]


@given(st.lists(st.text(min_size=1, max_size=30), min_size=2, max_size=6, unique=True) | st.just(HOSTILE))
def test_whatever_the_labels_are_the_spec_reads_as_those_labels(names: list[str]) -> None:
    rows = [{"text": f"text {n}", "label": name} for n, name in enumerate(names * 3)]
    mapping = ColumnMapping(inputs=("text",), output="label")
    looked = source(rows, mapping, TaskKind.LABEL)
    document = uploaded(looked, task="a: b # \u2028c", descriptions={names[0].strip(): "x: # y\n- z"})
    assert document["task"] == "a: b # \u2028c"
    if looked.profile.labels:
        assert [label["name"] for label in document["output"]["labels"]] == [
            each.name for each in looked.profile.labels
        ]


def test_what_no_upload_may_hold_is_dropped_and_the_rest_stays() -> None:
    looked = source([{"text": "a\x00b \U0001f4a5 \u202eabc\x1b[31m\ud800", "label": "x"}] * 2)
    assert looked.rows[0].input == "ab \U0001f4a5 \u202eabc[31m"


@pytest.mark.parametrize(
    ("text", "slug"),
    [
        ("Tickets (März 2026).csv", "tickets-marz-2026"),
        ("客户.csv", "my-task"),
        ("a" * 100, "a" * 64),
        ("--.csv", "my-task"),
    ],
)
def test_a_task_is_named_after_its_file(text: str, slug: str) -> None:
    assert slug_of(text) == slug


def test_the_schema_of_objects_says_what_is_always_there_and_what_may_be_missing() -> None:
    answers = ['{"a": 1, "b": {"c": ["x"]}}', '{"a": 2.5, "d": null, "b": {"c": []}}']
    schema = infer_schema(answers)
    assert schema["required"] == ["a", "b"]
    assert schema["properties"]["a"] == {"type": "number"}
    assert schema["properties"]["b"]["properties"]["c"] == {"type": "array", "items": {"type": "string"}}
    assert schema["properties"]["d"] == {"type": "null"}
