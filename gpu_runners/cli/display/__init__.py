"""The output of commands: tables, members and JSON, a compile's progress, and the draft cache's pages."""
