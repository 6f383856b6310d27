"""The purchases of labelling on the terminal: a line a round, and why there were no more."""

from collections.abc import Iterable

from gpu_runners.kolm import Step


def print_purchases(steps: Iterable[Step]) -> None:
    """Print the rounds of a compile with these steps; nothing where labels were bought at once, or not yet."""
    from backend.domain.labeling.purchase_words import RoundLine, all_entries, round_lines, stop_words

    def text(line: RoundLine) -> str:
        parts = [line.bought]
        if line.n_votes is not None:
            parts.append(f"{line.n_votes:,} vote{'' if line.n_votes == 1 else 's'}, {line.n_rows or 0:,} labelled")
        if line.accuracy:
            parts.append(f"cross-validated {line.accuracy}")
        return "; ".join(parts)

    output = next((step.output for step in steps if step.name == "labeling"), None)
    entries = all_entries((output or {}).get("facts", {}))
    if not entries:
        return
    print("what was bought:")
    for line in round_lines(entries):
        print(f"  {f'round {line.number}' if line.number else 'start':<9} {text(line)}")
    stop = stop_words(entries[-1]["stopped_for"])
    print(f"  {'stopped':<9} {' '.join(filter(None, (stop.reason, stop.advice)))}")
