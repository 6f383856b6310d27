#!/usr/bin/env python
"""Django's entry point. `KOLM_DB_ROLE=owner` in front of it connects as the owner of the tables (migrate,
install_tenant_key)."""

import os
import sys


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "backend.settings")
    from django.core.management import execute_from_command_line

    from backend.domain.log_text import guard_logs

    if not sys.stderr.isatty():  # a supervisor's log or cron's letter, not the person who typed the command
        guard_logs()
    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
