"""What is known of the hardware beneath a run, and how it is told in lines: the same on a screen and on stdout."""
