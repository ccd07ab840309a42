"""Reports what a script gives to `Accelerator.log`.

    from tuiapp.integrations.accelerate import TuiappTracker

    accelerator = Accelerator(log_with=TuiappTracker())
    accelerator.init_trackers("baseline", config={"lr": 0.1})

Accelerate calls trackers on the main process alone. Stops and checkpoints concern all of them, so each asks:
`tuiapp.current().should_stop()`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from accelerate.tracking import GeneralTracker

from tuiapp.trainers.script.tracking import Run, current


class TuiappTracker(GeneralTracker):
    """A tracker for `Accelerator(log_with=...)`.

    Args:
        run_name: Shown beside the run's id.
    """

    name = "tuiapp"
    requires_logging_directory = False

    def __init__(self, run_name: str = "") -> None:
        super().__init__()
        self._run_name = run_name

    @property
    def tracker(self) -> Run:
        """The run, which begins when it is first wanted: once the processes know each other."""
        return current(self._run_name)

    def store_init_configuration(self, values: Mapping[str, Any]) -> None:
        self.tracker.config.update(values)

    def log(self, values: Mapping[str, Any], step: int | None = None, **_: Any) -> None:
        self.tracker.log(values, step=step)

    def finish(self) -> None:
        self.tracker.finish()
