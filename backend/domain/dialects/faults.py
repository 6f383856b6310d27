"""The faults of an endpoint that end a call for good, told apart by what each needs: another key, credit, another
model, another address. Nothing of the endpoint's own words is in a sentence."""

from dataclasses import dataclass
from enum import StrEnum


class TeacherFault(StrEnum):
    WRONG_KEY = "wrong_key"
    NO_KEY = "no_key"
    NO_QUOTA = "no_quota"
    NO_ACCESS = "no_access"
    NO_SUCH_MODEL = "no_such_model"
    NOT_A_CHAT_MODEL = "not_a_chat_model"
    NO_SUCH_PATH = "no_such_path"
    NOT_OPENAI = "not_openai"
    HTML = "html"
    REDIRECT = "redirect"
    STREAM = "stream"
    COMPRESSED = "compressed"
    BAD_KEY = "bad_key"
    UNKNOWN_HOST = "unknown_host"
    NO_TLS = "no_tls"
    WANTS_TLS = "wants_tls"
    BAD_CERTIFICATE = "bad_certificate"
    ADDRESS = "address_not_allowed"
    CONTENT = "content_refused"
    SERVER_ERROR = "server_error"
    OTHER_REFUSAL = "other_refusal"


MAY_PASS = frozenset({TeacherFault.SERVER_ERROR})  # worth a second call in a moment


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultText:
    """`finding` goes on from "The teacher MODEL failed: " and from "The teacher MODEL at HOST: ". `code` is that of a
    preflight's line."""

    code: str
    finding: str
    what_to_do: str


FAULT_TEXTS: dict[TeacherFault, FaultText] = {
    TeacherFault.WRONG_KEY: FaultText(
        code="wrong_key",
        finding="it refuses the API key",
        what_to_do="Copy the key at your vendor whole, store it with POST /v1/teacher_keys, and put the new id in "
        "teacher.api_key. A key may hold for one resource or region: then teacher.base_url names another one.",
    ),
    TeacherFault.NO_KEY: FaultText(
        code="no_key",
        finding="it refuses calls without an API key, and the spec names none",
        what_to_do="Store your vendor's key with POST /v1/teacher_keys and put its id (tk_...) in teacher.api_key.",
    ),
    TeacherFault.NO_QUOTA: FaultText(
        code="no_quota",
        finding="the account has no credit or quota left",
        what_to_do="Add credit or raise the limit at your vendor, or use the key of another account.",
    ),
    TeacherFault.NO_ACCESS: FaultText(
        code="no_access",
        finding="the API key may not use this model, or its API",
        what_to_do="Have the model, and at Google its API, enabled for the key's project at your vendor, or name "
        "another one in teacher.model.",
    ),
    TeacherFault.NO_SUCH_MODEL: FaultText(
        code="no_such_model",
        finding="it knows no such model, or the key may not see it",
        what_to_do="Correct teacher.model: your vendor's GET /v1/models lists the names that this key may use.",
    ),
    TeacherFault.NOT_A_CHAT_MODEL: FaultText(
        code="not_a_chat_model",
        finding="it serves this model through another API than chat completions",
        what_to_do="Name another model in teacher.model, one that your vendor serves at /chat/completions.",
    ),
    TeacherFault.NO_SUCH_PATH: FaultText(
        code="no_such_path",
        finding="it knows no such model or path (does the base URL end in /v1?)",
        what_to_do="Correct teacher.base_url: it is what stands before /chat/completions, mostly up to /v1.",
    ),
    TeacherFault.NOT_OPENAI: FaultText(
        code="not_openai",
        finding="it does not answer as OpenAI's chat completions do",
        what_to_do="Name the vendor's OpenAI-compatible address in teacher.base_url (/docs/teachers has a list).",
    ),
    TeacherFault.HTML: FaultText(
        code="html",
        finding="it answers with a web page instead of JSON",
        what_to_do="Correct teacher.base_url: this is the address of a web site, or a proxy or log-in page in between.",
    ),
    TeacherFault.REDIRECT: FaultText(
        code="redirect",
        finding="it answers with a redirect, which is not followed",
        what_to_do="Write the address that it leads to in teacher.base_url, with https:// and without a slash at its "
        "end; where that is a page to log in at, name the vendor's address for programs.",
    ),
    TeacherFault.STREAM: FaultText(
        code="stream",
        finding="it answers with a stream of events although none was asked for",
        what_to_do="Let your gateway answer as it is asked (without stream: true), or name the vendor's own address in "
        "teacher.base_url.",
    ),
    TeacherFault.COMPRESSED: FaultText(
        code="compressed",
        finding="it compresses its answer although that was not accepted",
        what_to_do="Let the proxy at teacher.base_url send answers as they are where accept-encoding is identity, or "
        "name the vendor's own address.",
    ),
    TeacherFault.BAD_KEY: FaultText(
        code="bad_key",
        finding="the stored API key holds characters that no key has",
        what_to_do="Store the key alone, without quotes, spaces or Bearer, with POST /v1/teacher_keys, and put the new "
        "id in teacher.api_key.",
    ),
    TeacherFault.UNKNOWN_HOST: FaultText(
        code="unknown_host",
        finding="no name server knows its host",
        what_to_do="Correct the host in teacher.base_url; a name of your own network must be known where kolm runs.",
    ),
    TeacherFault.NO_TLS: FaultText(
        code="no_tls",
        finding="it speaks no TLS at this port",
        what_to_do="Correct scheme and port of teacher.base_url: https:// is for a port that speaks TLS, mostly 443.",
    ),
    TeacherFault.WANTS_TLS: FaultText(
        code="wants_tls",
        finding="it speaks TLS at this port, and the address says http",
        what_to_do="Write https:// in teacher.base_url.",
    ),
    TeacherFault.BAD_CERTIFICATE: FaultText(
        code="bad_certificate",
        finding="its certificate is not trusted: self-signed, expired, or for another name",
        what_to_do="Write the name that the certificate is for in teacher.base_url, or give the server a certificate "
        "of a public authority.",
    ),
    TeacherFault.ADDRESS: FaultText(
        code="address_not_allowed",
        finding="its name leads to an address that this installation does not call",
        what_to_do="Name a public https address; one in your own network is allowed by the operator in "
        "KOLM_ALLOW_PRIVATE_TEACHERS.",
    ),
    TeacherFault.CONTENT: FaultText(
        code="content_refused",
        finding="its filter refuses the text of the request",
        what_to_do="Say the task in other words, or have the filter changed at your vendor, or name another model in "
        "teacher.model: even a harmless test is refused.",
    ),
    TeacherFault.SERVER_ERROR: FaultText(
        code="server_error",
        finding="it answers with an error of its own",
        what_to_do="Look at your vendor's status page, or at the log of your own server; then try again.",
    ),
    TeacherFault.OTHER_REFUSAL: FaultText(
        code="other_refusal",
        finding="it does not accept the request (is the model's name right, does it allow this temperature?)",
        what_to_do="Check teacher.model, teacher.base_url and teacher.dialect (/docs/teachers).",
    ),
}
