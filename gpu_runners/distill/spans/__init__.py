"""Training of a json task's span students."""
