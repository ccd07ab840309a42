"""One run: its supervisor, the part of it on each machine, and all that watches, stops and records it."""
