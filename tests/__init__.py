"""Tests, bottom up: contract, state, screens, processes, pty."""
