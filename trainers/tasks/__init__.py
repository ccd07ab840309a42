"""What models are trained for."""
