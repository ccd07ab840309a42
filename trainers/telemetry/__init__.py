"""Samples GPUs, the ranks' processes and the host, in a process of its own: `python -m trainers.telemetry ORDER`."""
