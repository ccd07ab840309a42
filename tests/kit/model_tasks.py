"""The models of the catalog by what they train on."""

from __future__ import annotations

from tuiapp.trainers.config.catalog import MODELS
from tuiapp.trainers.tasks.catalog import IMAGES

IMAGE_MODELS = [name for name, model in MODELS.items() if model.task == IMAGES.name]
EXAMPLE = {name: "digits" if name in IMAGE_MODELS else "shakespeare" for name in MODELS}
"""Model → a data set that it is for, which ships."""
