"""A user's own script in a soak: reports so many steps, and ends when its run is to stop."""

import sys
import time

import tuiapp

run = tuiapp.init()
for step in range(1, 1 + int(sys.argv[1])):
    time.sleep(0.005)  # it trains
    tuiapp.log({"train/loss": 1 / step}, step=step)
    if run.should_stop():
        break
