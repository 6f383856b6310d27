"""The form in which an answer goes out: as the artifact writes it, or as the JSON that a caller asked for with
`response_format` or with a tool that must be called.

An artifact of a json task serves a schema that takes each of its own answers; one of a label task a schema of one
field that takes each label. Then the artifact answers as it was trained and measured, and its answer is written in
that form. What a student on an encoder cannot serve is refused before it runs; a causal model is held to the caller's
schema.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from backend.domain.answers.json_schemas import normal_schema
from backend.domain.answers.schema_inclusion import inclusion_fault
from gpu_runners.serving.openai.bodies.bad_request import BadRequest
from gpu_runners.serving.openai.bodies.chats import ChatCall
from gpu_runners.serving.openai.bodies.tool_choices import Function
from gpu_runners.serving.openai.tools import tool_call


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerForm:
    """`is_own`: the artifact's own answer, else one by `schema` (None: whatever the sampling says). `field`: a label is
    the value of this field. `function`: the JSON are the arguments of its call. `names_function`: the JSON has the name
    of the function beside the arguments."""

    is_own: bool = True
    schema: Mapping[str, Any] | None = None
    field: str = ""
    function: str = ""
    names_function: bool = False

    @property
    def is_plain(self) -> bool:
        """The answer goes out as it is written, piece by piece."""
        return not (self.field or self.function or self.names_function)


def asked_form(call: ChatCall, own: Mapping[str, Any]) -> AnswerForm:
    """`own` is an answer as prompt.json has it ({}: a bare base). Raises BadRequest where a label does not fit what is
    asked, or tool and log-probs are asked together."""
    form = _asked_form(call, own)
    if not form.is_plain and call.sampling.top_logprobs is not None:
        raise _refusal("logprobs", "The answer goes out in another form than its tokens; leave `logprobs` out.")
    return form


def _asked_form(call: ChatCall, own: Mapping[str, Any]) -> AnswerForm:
    if call.forced:
        return _forced_form(call.forced, own)
    schema = call.sampling.schema
    if schema is None:
        return AnswerForm(is_own=call.sampling.format is None)
    if own.get("type") == "label":
        return AnswerForm(field=_label_field(own["labels"], schema, "response_format"))
    if own.get("type") == "json" and inclusion_fault(own["schema"], schema) is None:
        return AnswerForm()
    return AnswerForm(is_own=False, schema=schema)


def _forced_form(functions: Sequence[Function], own: Mapping[str, Any]) -> AnswerForm:
    match own.get("type"):
        case "label":
            return _label_call(functions, own["labels"])
        case "json":
            fitting = [one for one in functions if inclusion_fault(own["schema"], one.parameters) is None]
            if len(fitting) == 1:
                return AnswerForm(function=fitting[0].name)
            if len(fitting) > 1:
                raise _ambiguous(fitting)
    if len(functions) == 1:
        return AnswerForm(is_own=False, schema=functions[0].parameters, function=functions[0].name)
    return AnswerForm(is_own=False, schema={"anyOf": [_named_call(one) for one in functions]}, names_function=True)


def _label_call(functions: Sequence[Function], labels: Sequence[str]) -> AnswerForm:
    fields: dict[str, str] = {}
    refusals = []
    for one in functions:
        try:
            fields[one.name] = _label_field(labels, one.parameters, "tools")
        except BadRequest as refusal:
            refusals.append(refusal)
    if not fields:
        raise refusals[0]
    if len(fields) > 1:
        raise _ambiguous([one for one in functions if one.name in fields])
    ((function, field),) = fields.items()
    return AnswerForm(function=function, field=field)


def _label_field(labels: Sequence[str], schema: Mapping[str, Any], param: str) -> str:
    """The one field that takes each label. Raises BadRequest."""
    names: list[str] = list(normal_schema(schema).get("properties", {}))
    if len(names) != 1:
        raise _refusal(
            param,
            "This model answers with one of its labels, so what is asked of it has one field, a string or an enum; "
            f"this schema has {len(names)}.",
        )
    own = {
        "type": "object",
        "properties": {names[0]: {"enum": list(labels)}},
        "required": names,
        "additionalProperties": False,
    }
    if inclusion_fault(own, schema) is not None:
        raise _refusal(
            param,
            f"This model answers with one of its labels ({', '.join(labels[:20])}"
            f"{', ...' if len(labels) > 20 else ''}), and the field {names[0]!r} does not take each of them; make it a "
            "string, or an enum with all labels.",
        )
    return names[0]


def unfit_answer(call: ChatCall, own: Mapping[str, Any]) -> BadRequest:
    """The refusal of a schema that not every answer of a json task fits."""
    asked = call.forced[0].parameters if call.forced else call.sampling.schema or {}
    fault = inclusion_fault(own["schema"], asked)
    if call.forced:
        return _refusal(
            "tools",
            "This model answers by the schema that it was trained for, and its answers do not all fit the parameters "
            f"of {call.forced[0].name[:80]!r} ({fault}). Give the function the task's schema, or compile the task with "
            "this one.",
        )
    return _refusal(
        "response_format",
        "This model answers by the schema that it was trained for, and its answers do not all fit the one asked for "
        f"({fault}); leave response_format out, or compile the task with your schema.",
    )


def _named_call(function: Function) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {"name": {"const": function.name}, "arguments": normal_schema(function.parameters)},
        "required": ["name", "arguments"],
    }


def _ambiguous(functions: Sequence[Function]) -> BadRequest:
    names = ", ".join(repr(one.name[:80]) for one in functions[:5])
    return _refusal("tool_choice", f"The answer fits more than one function ({names}); name one in tool_choice.")


def _refusal(param: str, message: str) -> BadRequest:
    return BadRequest(message, param=param, code="unsupported_parameter")


@dataclass(slots=True)
class FormWriter:
    """Holds an answer back until it is whole, and writes it in a form that is not plain."""

    form: AnswerForm
    held: str = ""

    def push(self, text: str) -> str:
        self.held += text
        return ""

    def finish(self) -> tuple[str, list[dict[str, Any]]]:
        """(content, tool calls)."""
        text = json.dumps({self.form.field: self.held}, ensure_ascii=False) if self.form.field else self.held
        if self.form.function:
            return "", [tool_call(self.form.function, text)]
        if self.form.names_function:
            return _read_call(text)
        return text, []


def _read_call(text: str) -> tuple[str, list[dict[str, Any]]]:
    """A call with its name; one that was cut off is text."""
    try:
        value = json.loads(text)
    except ValueError:
        return text, []
    return "", [tool_call(value["name"], json.dumps(value["arguments"], ensure_ascii=False))]
