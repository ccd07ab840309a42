"""Short scripts to start from, each after its framework's own example: `tuiapp run tuiapp/examples/keras_fit.py`."""
