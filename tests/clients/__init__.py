"""Other people's clients against `kolm serve`: each in a process of .venv-clients, against servers on loopback here.

`trying` and the `try_*` modules run there; they import nothing of kolm's.
"""
