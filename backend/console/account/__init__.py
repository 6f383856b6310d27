"""The pages of a person and a team: signing up, members, team settings, the audit log, account security."""
