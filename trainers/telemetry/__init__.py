"""Samples GPUs, the ranks' processes and the host, in a separate process: `python -m trainers.telemetry ORDER`."""
