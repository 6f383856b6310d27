"""The pages of a person and a team: coming in, the team's people, its settings, its audit log, one's own log-in."""
