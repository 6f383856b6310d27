"""A finished `.kolm` as a model that answers: verified first, rules before the model, recipe packs beside it."""
