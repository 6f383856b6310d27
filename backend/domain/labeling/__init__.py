"""Labels that are bought, and what they teach: students of embeddings, rounds, posteriors, confidences."""
