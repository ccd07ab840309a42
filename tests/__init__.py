"""Tests: unit, screens, processes, real and pty; what they share is in kit, what is measured in bench."""
