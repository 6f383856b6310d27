"""Selection on a reader's machine (`kolm select`) and on a runner (`job`): rows in, picks, explanations and a map
out."""
