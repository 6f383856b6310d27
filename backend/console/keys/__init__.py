"""The page of API keys, and which permissions a person may give to one."""
