"""The terminal: driver, output, keys, and fixes for Textual."""
