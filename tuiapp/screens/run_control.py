"""What a person can ask of a run from its screen: to stop, to save a checkpoint, to go on again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeAlias

from textual.screen import Screen

from trainers.contract import mailbox
from trainers.contract.newer import why_read_only
from trainers.contract.resume_point import resume_point
from trainers.contract.rundir import RunDir
from trainers.launch import Resumed
from tuiapp.library.commands import CannotAskError, ask
from tuiapp.screens.confirm import Choice
from tuiapp.state.run_facts import RunFacts
from tuiapp.state.text import sanitize_lines

Resumer: TypeAlias = Callable[[RunDir], Resumed]
"""Goes on with a run; called in a thread."""

NOTICE_S = 20.0
"""How long a notice stands that has more than a few words."""


class RunControl:
    """Asks the person, then the run; says what came of it.

    Args:
        screen: Where questions and notices appear.
        run: The run.
        resumer: Goes on with it.
    """

    def __init__(self, screen: Screen[Any], run: RunDir, resumer: Resumer) -> None:
        self._screen, self._run, self._resumer = screen, run, resumer
        self.asked_to_stop = False
        """This attempt was asked to stop, whether it has said so yet or not."""
        self.resuming = False
        """A further attempt is being started."""

    def checkpoint(self) -> None:
        """Ask the run to save a checkpoint and go on."""
        if self._send("checkpoint"):
            self._screen.notify("Asked the run for a checkpoint; the log says when it is saved.")

    async def stop(self, state: RunFacts) -> None:
        """Ask, then have the run stop; once it is stopping, offer to stop it at once. Must run in a worker."""
        if not state.is_live:
            self._screen.notify(f"This run is over: {state.status}.")
            return
        if state.stop_requested is not None or self.asked_to_stop:
            choice = Choice(
                "Stop now?",
                "The run is stopping in order. Stopping now ends the ranks at once, without a further checkpoint.",
                [("wait", "Keep waiting", "default"), ("stop-now", "Stop now", "error")],
            )
        else:
            choice = Choice(
                "Stop this run?",
                "It saves a checkpoint after the step that all ranks agree on, and ends. It can be resumed from there.",
                [("stop", "Stop and save", "warning"), ("run-on", "Keep running", "default")],
            )
        answer = await self._screen.app.push_screen_wait(choice)
        if answer in ("stop", "stop-now") and not state.is_live:
            self._screen.notify(f"This run is over: {state.status}.")
        elif answer in ("stop", "stop-now") and self._send("stop-now" if answer == "stop-now" else "stop"):
            self.asked_to_stop = True
            how = "stop now" if answer == "stop-now" else "save and stop"
            self._screen.notify(f"Asked the run to {how}.")

    async def resume(self, state: RunFacts) -> None:
        """Ask, then go on with a run that is over. Must run in a worker."""
        step = state.resume_step
        if step is None:
            # It was lost before its journal held a checkpoint: there may be one that it never heard of.
            if (point := await asyncio.to_thread(resume_point, self._run)) is None:
                self._tell("This run has no checkpoint to resume from.", "warning")
                return
            step = point.step
        anew = f" What it did after that, up to step {state.step:,}, is done anew." if state.step > step else ""
        choice = Choice(
            "Resume this run?",
            f"It goes on from step {step:,}, with the same configuration.{anew}",
            [("resume", "Resume", "primary"), ("cancel", "Cancel", "default")],
        )
        if await self._screen.app.push_screen_wait(choice) != "resume" or not state.can_resume:
            return
        self.resuming = True
        self._screen.refresh_bindings()
        self._screen.notify("Resuming…")
        try:
            resumed = await asyncio.to_thread(self._resumer, self._run)
        except Exception as error:  # Whatever it is: it is said, and the run is as it was.
            self._tell(str(error), "error")
        else:
            for note in resumed.notes:
                self._tell(note, "warning")
        finally:
            self.resuming = False
            self._screen.refresh_bindings()

    def _tell(self, text: str, severity: Any) -> None:
        words = "\n".join(sanitize_lines(text))
        self._screen.notify(words, severity=severity, timeout=NOTICE_S, markup=False)

    def _send(self, command: mailbox.Command) -> bool:
        if reason := why_read_only(self._run):
            self._tell(f"This run cannot be asked for that: {reason}.", "error")
            return False
        try:
            instead = ask(self._run, command)
        except CannotAskError as error:
            self._tell(f"Cannot ask the run for that: {error}", "error")
            return False
        if instead:
            self._tell(instead, "warning")
        return True
