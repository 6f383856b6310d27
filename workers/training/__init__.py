"""The way from the teacher's answers to what is trained and measured: votes, the training set, trials on runners,
held-out answers, recipe packs."""
