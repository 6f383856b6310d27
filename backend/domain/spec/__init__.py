"""The task spec: its models, its rules, the words for its problems, gold. `parsing.parse_spec` is the way in."""
