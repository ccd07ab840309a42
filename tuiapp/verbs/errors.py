"""Errors of the verbs that are shown to the user; imported when there is one, as it loads what the verbs do."""

from __future__ import annotations

from tuiapp.actions.action import ActionError
from tuiapp.library.environments import CreateError
from tuiapp.library.export import ExportError
from tuiapp.library.find import UnknownRunError
from tuiapp.library.manual import TopicError
from tuiapp.library.presets import PresetError
from tuiapp.trainers.config.options import ConfigError
from tuiapp.trainers.contract.sidecars import AboutError
from tuiapp.trainers.experiments.queue import NotStartedError, QueueError
from tuiapp.trainers.experiments.study import StudyError
from tuiapp.trainers.launch import LaunchError
from tuiapp.verbs.output import UsageError

__all__ = ["FOR_THE_USER", "NotStartedError"]

FOR_THE_USER = (
    AboutError,
    ActionError,
    ConfigError,
    CreateError,
    PresetError,
    QueueError,
    UnknownRunError,
    LaunchError,
    ExportError,
    StudyError,
    TopicError,
    UsageError,
)
