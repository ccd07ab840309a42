"""The terminal itself: driver, output and keys, and what Textual needs mending in."""
