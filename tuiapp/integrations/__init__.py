"""Adapters to other people's trainers: each reports by `tuiapp.log` and imports its own package alone.

None ends the run: that ends with the script, so that an evaluation after training is reported too.
"""
