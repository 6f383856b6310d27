"""The grammar teacher's error for a prompt that it does not answer."""


class NotOurPrompt(ValueError):
    """The prompt is not one of kolm's own; the grammar teacher answers no other."""
