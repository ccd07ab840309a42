"""Stands in for torch-ddp where the framework does not matter: ranks in lockstep over the run's rendezvous socket.

A rank starts within a moment, and its steps take as long as TUIAPP_TEST_STEP_S says. With TUIAPP_TEST_PACE_S they begin
on the clock, so many seconds apart, and a step's loss is by how many milliseconds it was late. TUIAPP_TEST_EVALUATIONS
has the test loss and accuracy of the first evaluations: `LOSS:ACCURACY …`; TUIAPP_TEST_WEIGHTS is how many there are.
"""

from __future__ import annotations

import os
import signal
import socket
import time

import numpy as np

from tuiapp.trainers.config.plan import Plan
from tuiapp.trainers.rank.checkpoints import Checkpoints
from tuiapp.trainers.rank.loop import Evaluate, Save, Step, training
from tuiapp.trainers.rank.reporter import Reporter


def _seconds(name: str, default: float = 0.0) -> float:
    return float(os.environ.get(f"TUIAPP_TEST_{name}_S", default))


class Collective:
    """All ranks meet at rank 0."""

    def __init__(self, rank: int, world_size: int) -> None:
        if rank:
            self._peers = [socket.create_connection((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])))]
        else:
            listener = socket.socket(fileno=int(os.environ["TUIAPP_STORE_FD"]))
            self._peers = [listener.accept()[0] for _ in range(world_size - 1)]
            listener.close()
        self._rank = rank

    def all_reduce(self) -> None:
        """Wait for all ranks."""
        if self._rank:
            self._peers[0].sendall(b".")
        for peer in self._peers:
            if not peer.recv(1):
                if signal.getsignal(signal.SIGTERM) is signal.SIG_IGN:
                    # Deaf, and stubborn: it waits on.
                    time.sleep(3600)
                raise RuntimeError("fake collective: Connection closed by peer")
        if not self._rank:
            for peer in self._peers:
                peer.sendall(b".")


class Pace:
    """Steps on the clock, as a GPU takes them: Python prepares one while the one before is computed.

    Args:
        period_s: From one step to the next.
    """

    def __init__(self, period_s: float) -> None:
        self._period_s, self._due = period_s, time.monotonic()

    def wait(self) -> float:
        """Wait for a step's time; by how many seconds it is late."""
        self._due += self._period_s
        time.sleep(max(0.0, self._due - time.monotonic()))
        late_s = time.monotonic() - self._due
        if late_s > self._period_s:
            # The device has had nothing to do meanwhile: that time is lost.
            self._due += late_s
        return late_s


def train(plan: Plan, rank: int, report: Reporter, checkpoints: Checkpoints) -> None:
    """Train like torch-ddp, but for the training."""
    report.rank_started("cpu")
    collective = Collective(rank, plan.config.devices)
    collective.all_reduce()
    step_s = _seconds("STEP", 0.005)
    pace = Pace(_seconds("PACE")) if _seconds("PACE") else None
    evaluations = iter(os.environ.get("TUIAPP_TEST_EVALUATIONS", "").split())
    for work in training(plan, report, checkpoints):
        match work:
            case Step(step):
                loss = 1e3 * pace.wait() if pace else 1.0 / step + rank
                if step_s and not pace:
                    time.sleep(step_s)
                collective.all_reduce()
                work.done(loss)
            case Evaluate(step):
                collective.all_reduce()
                loss, accuracy = map(float, next(evaluations, f"{1.0 / step}:0.5").split(":"))
                work.report.evaluation(step, 360, {"loss": loss, "accuracy": accuracy})
            case Save(step):
                collective.all_reduce()
                state = {"weights": np.full(int(os.environ.get("TUIAPP_TEST_WEIGHTS", 1000)), step, np.float32)}
                work.done(state, state)
