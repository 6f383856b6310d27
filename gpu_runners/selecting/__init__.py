"""Selection on a reader's machine (`kolm select`): rows in, picks, explanations and a map out."""
