"""The pages that are made from the code: commands, client, spec and HTTP API, each by one file."""
