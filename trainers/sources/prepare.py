"""Opens the user's own data by its source, and makes what ranks in another interpreter cannot make themselves.

    python -m tuiapp.trainers.sources.prepare      the facts about a data set on stdin, as JSON

Such ranks need not have the packages that downloading and decoding take (pooch, Pillow, pyarrow): tuiapp's own
interpreter does that for them, and they read the result from the cache directory. Progress goes to the rank's stdout.
"""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from types import ModuleType

import msgspec

from tuiapp.trainers.config.data_files import FILES, DatasetError
from tuiapp.trainers.config.datasets import Dataset, source_of
from tuiapp.trainers.run import wire
from tuiapp.trainers.sources.arrays import StoredArrays, split_rows
from tuiapp.trainers.sources.downloads import fetch
from tuiapp.trainers.sources.image_cache import open_cached


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


def open_stored(data: Dataset) -> StoredArrays:
    """Opens a data set that a launch has examined; its images are read when they are wanted. Raises DatasetError."""
    source = source_of(data.name)
    if source is not None and source.is_decoded and (cached := open_cached(data.checksum)) is not None:
        return split_rows(*cached, data)
    stored: StoredArrays = module_of(data.name).load(data)
    return stored


def module_of(name: str) -> ModuleType:
    """Returns what reads a data set of the user's own, imported when it is wanted: some take Pillow, or pyarrow."""
    source = source_of(name)
    assert source is not None
    return importlib.import_module(f"tuiapp.trainers.sources.{source.module}")


def main() -> int:
    """Returns 1 with the reason on stderr if the data set cannot be made."""
    data = msgspec.json.decode(sys.stdin.buffer.read(), type=Dataset)
    try:
        if data.name not in FILES:
            open_stored(data)
        for file in FILES.get(data.name, ()):
            fetch(data.name, file)
    except DatasetError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
