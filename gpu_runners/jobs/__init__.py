"""What a runner does with a trained adapter or a pool of rows: evaluation, recipe packs and selection. Files and values
in, files and values out; no network."""
