"""Trains a backend with a process per device here, as the only rank."""

from __future__ import annotations

import os

import pytest

from tests.kit.recorder import Recorder, Shelf, train
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.run import wire
from tuiapp.trainers.run.rank_environment import LOOPBACK, bind_rendezvous


def train_alone(config: RunConfig, shelf: Shelf | None = None, *, save_at: int | None = None) -> Recorder:
    """Trains as `train` does, with what a rank finds in its environment."""
    with bind_rendezvous(LOOPBACK) as listener, pytest.MonkeyPatch.context() as environment:
        environment.setenv("MASTER_ADDR", "127.0.0.1")
        environment.setenv("MASTER_PORT", str(listener.getsockname()[1]))
        # The store closes what it is given.
        environment.setenv(wire.STORE_FD, str(os.dup(listener.fileno())))
        return train(config, save_at=save_at, shelf=shelf)
