"""The stack on one machine, with nothing installed by hand: servers and kolm's processes under one supervisor.

python3 -m deploy.setup                    .venv from the lock (standard library only, any Python 3)
.venv/bin/python -m deploy.embedded up     Postgres, Valkey, web, worker, upkeep, webhooks, runner, grammar teacher
"""
