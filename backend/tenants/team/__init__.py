"""The people of a tenant: members and their roles, invitations and their e-mails, seats and the team's settings."""
