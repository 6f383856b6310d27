"""The commands that ask a deployment's API, a group of them in a file."""
