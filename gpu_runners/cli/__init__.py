"""The `kolm` command. One module holds a group of commands with their options; what only one command needs is imported
when that command runs, so that `kolm verify` starts without httpx, pydantic or torch."""
