"""Everything that trains; knows nothing of the terminal."""
