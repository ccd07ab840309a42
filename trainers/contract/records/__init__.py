"""Runs on the disk, beside their journals: lists of them, checkpoints, requests, locks, what is left of them."""
