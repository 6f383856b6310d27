"""kolm on one machine, with nothing installed by hand.

    python3 -m deploy.embedded.setup           .venv from the lock (standard library only, any Python 3)
    .venv/bin/python -m deploy.embedded up     Postgres, Valkey, web, worker, upkeep, webhooks, runner, grammar teacher
    .venv/bin/python -m deploy.embedded.demo   one compile, from POST to a verified, running .kolm

This file stays empty of imports: `setup` must run before anything is installed and on interpreters that are too old for
the rest.
"""
