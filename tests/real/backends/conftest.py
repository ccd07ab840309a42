"""Gives this process CPU devices enough for all tests, before JAX counts them, and Keras JAX to compute with."""

from __future__ import annotations

import os

import jax

from tests.kit.recorder import DEVICES

os.environ["KERAS_BACKEND"] = "jax"
os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", DEVICES)
