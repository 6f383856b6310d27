"""The pages of webhook endpoints and their deliveries."""
