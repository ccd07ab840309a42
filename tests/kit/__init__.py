"""What tests share: scenes, histories of runs, terminals, real runs, machines made for a test."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
"""Of the tree."""
