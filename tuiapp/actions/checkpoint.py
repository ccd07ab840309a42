"""Checkpoint: a run saves one after its current step, and trains on."""

from __future__ import annotations

from tuiapp.actions.action import Outcome
from tuiapp.actions.command import request
from tuiapp.library.find import titled
from tuiapp.trainers.contract.rundir import RunDir
from tuiapp.trainers.state.run_state import RunState


def refusal(state: RunState) -> str:
    """Says why a run cannot save one; "" if it can."""
    if not state.is_live:
        return "The run has ended: there is nothing to save."
    return "The run has not begun: there is nothing to save." if state.status == "queued" else ""


def do(run: RunDir) -> Outcome:
    """Asks a run to save a checkpoint."""
    outcome = request([run], "checkpoint")
    if outcome.done:
        outcome.say(f"Requested a checkpoint of {titled(run)}.")
    return outcome
