"""The exit statuses of the `kolm` command. Scripts rely on these; docs/client.md has the table."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpu_runners.kolm.errors import KolmError

OK = 0
FAILED = 1  # the compile, the request or the file failed
USAGE = 2  # the command line, or a file that it names, makes no sense
UNTRUSTED = 3  # an intact .kolm whose key nobody vouches for
GATE_FAILED = 4  # measured, and below the gate: nothing was published
REFUSED = 5  # by a spend cap, a budget or the plan
NOT_AUTHENTICATED = 6  # no key, or one that opens nothing
NOT_REACHABLE = 7  # no answer from the API
INTERRUPTED = 130
PIPE_CLOSED = 141


def exit_code_of(error: "KolmError") -> int:
    from gpu_runners.kolm.errors import NotReachable, PaymentRequired, Unauthenticated

    if isinstance(error, PaymentRequired):
        return REFUSED
    if isinstance(error, Unauthenticated):
        return NOT_AUTHENTICATED
    return NOT_REACHABLE if isinstance(error, NotReachable) else FAILED
