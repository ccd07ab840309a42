"""The error of an unusable data set."""

from __future__ import annotations


class DatasetError(Exception):
    """A data set cannot be used; the message is for the user: it names the file, what is wrong, and what to do."""
