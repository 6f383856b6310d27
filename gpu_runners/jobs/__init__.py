"""The jobs of a runner on a trained adapter or a pool of rows: evaluation, recipe packs and selection. Files and values
in, files and values out; no network."""
