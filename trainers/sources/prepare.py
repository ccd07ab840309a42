"""Downloads, or decodes, a data set in tuiapp's own interpreter for ranks that run in another one.

    python -m tuiapp.trainers.sources.prepare      the facts about a data set on stdin, as JSON

Theirs need not have the packages that this takes (pooch, Pillow, pyarrow). The ranks read what it makes from the cache
directory. Progress goes to the rank's stdout.
"""

from __future__ import annotations

import os
import subprocess
import sys

import msgspec

from tuiapp.trainers.config.data_files import FILES, DatasetError
from tuiapp.trainers.config.datasets import Dataset, source_of
from tuiapp.trainers.run import wire


def prepare(data: Dataset) -> None:
    """Makes what a rank in another interpreter cannot; raises DatasetError."""
    python, source = os.environ.get(wire.PYTHON), source_of(data.name)
    is_made = data.name in FILES or (source is not None and source.is_decoded)
    if python is None or not is_made:
        return
    command = [python, "-P", "-m", "tuiapp.trainers.sources.prepare"]
    done = subprocess.run(command, input=msgspec.json.encode(data), stderr=subprocess.PIPE, check=False)
    if done.returncode:
        raise DatasetError(done.stderr.decode(errors="replace").strip())


def main() -> int:
    """Returns 1 with the reason on stderr if the data set cannot be made."""
    data = msgspec.json.decode(sys.stdin.buffer.read(), type=Dataset)
    try:
        if data.name in FILES:
            from tuiapp.trainers.sources.downloads import fetch

            for file in FILES[data.name]:
                fetch(data.name, file)
        else:
            from tuiapp.trainers.sources.lookup import open_stored

            open_stored(data)
    except DatasetError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
