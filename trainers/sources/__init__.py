"""Data sets as NumPy arrays, and the order in which every backend sees them."""
