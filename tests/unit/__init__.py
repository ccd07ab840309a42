"""What needs no process of its own: pure functions, files, one command called in process."""
