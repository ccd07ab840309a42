"""Real frameworks, models and data."""
