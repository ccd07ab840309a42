"""Short scripts to start from, each after its framework's own example: `tuiapp run trainers/examples/keras_fit.py`."""
