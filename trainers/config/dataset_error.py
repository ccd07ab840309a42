"""The error of an unusable data set."""

from __future__ import annotations


class DatasetError(Exception):
    """A data set cannot be used; the message is for the user: it names the file, what is wrong, and what to do."""


class NotExaminedError(DatasetError):
    """A data set's facts are not known before a launch, which examines it in a process of its own."""
