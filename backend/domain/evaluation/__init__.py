"""What was measured on held-out data, what that is worth (the K-score), and the gate that it has to pass."""
