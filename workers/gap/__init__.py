"""The gap between the K picks that were asked for and the distinct candidates there are: what is done about it, and
what is recorded of a selection."""
