"""The faults that stop the embedded stack from starting. Each is told in one sentence, without a traceback."""


class CannotStart(Exception):
    """The sentence says what is wrong and what to do about it."""
