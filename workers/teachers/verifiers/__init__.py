"""The verification of drafts: the protocol of a dialogue, the rules on log-probs, and the gate, which asks nobody."""
