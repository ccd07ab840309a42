"""Prints one of README's commands: `python3 .ci/readme.py open|headless|test`.

They are its first three code blocks for a shell, a command each: open the dashboard, do the same without it, test.
"""

import re
import sys
from pathlib import Path

page = Path(__file__).parents[1].joinpath("README.md").read_text()
commands = re.findall(r"^```sh\n(.*)\n```", page, re.M)
print(commands[("open", "headless", "test").index(sys.argv[1])])
