"""The hardware of a run, and its description in lines: the same on a screen and on stdout."""
