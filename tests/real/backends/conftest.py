"""Gives this process CPU devices enough for all tests, before JAX counts them, and Keras JAX to compute with."""

from __future__ import annotations

import os

import jax

from tests.kit.recorder import DEVICES

os.environ["KERAS_BACKEND"] = "jax"
# Of a flag that is given twice the last counts: the environment's.
os.environ["XLA_FLAGS"] = f"--xla_cpu_multi_thread_eigen=false {os.environ.get('XLA_FLAGS', '')}".strip()
jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", DEVICES)
