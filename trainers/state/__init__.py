"""What a run's events add up to: curves, the run's state, its digest and its summary; pure, in bounded memory."""
