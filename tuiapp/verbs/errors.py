"""What the verbs raise for their user to read."""

from __future__ import annotations

from trainers.contract.options import ConfigError
from trainers.contract.presets import PresetError
from trainers.contract.records.removal import RemovalError
from trainers.contract.records.which_run import UnknownRunError
from trainers.launch import LaunchError
from tuiapp.export import ExportError
from tuiapp.verbs.facts import UsageError

FOR_THE_USER = (ConfigError, PresetError, UnknownRunError, LaunchError, RemovalError, ExportError, UsageError)
"""Their text says what is wrong and what to do."""
