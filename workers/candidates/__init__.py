"""The candidates of a slice: written in rounds, with drafts as proposals where the engine takes them, checked,
embedded, scored; and what the budget leaves for another round."""
