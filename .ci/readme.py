"""Prints one of README's commands: `python3 .ci/readme.py open|headless|test`.

README's first code block opens the dashboard with its first command and is its headless twin with the second; the
second block runs the tests.
"""

import re
import sys
from pathlib import Path

blocks = re.findall(r"^```sh\n(.*?)^```", Path(__file__).parents[1].joinpath("README.md").read_text(), re.M | re.S)
lines = {"open": blocks[0].splitlines()[0], "headless": blocks[0].splitlines()[1], "test": blocks[1].splitlines()[0]}
print(lines[sys.argv[1]])
