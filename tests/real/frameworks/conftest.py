"""Chooses what Keras computes with in this process, before it is imported."""

from __future__ import annotations

import os

os.environ["KERAS_BACKEND"] = os.environ.get("TUIAPP_TEST_KERAS_BACKEND", "jax")
