"""Samples GPUs, ranks' processes and the host in a process of its own: `python -m tuiapp.trainers.telemetry ORDER`."""
