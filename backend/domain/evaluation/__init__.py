"""The measurements on held-out data, their worth (the K-score), and the gate that a model has to pass."""
