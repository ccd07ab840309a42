"""`python -m tuiapp.trainers.sources.examine`: a configuration on stdin, facts about its data on stdout, as JSON."""

from __future__ import annotations

import os
import sys

import msgspec

from tuiapp.trainers.config.data_files import DatasetError
from tuiapp.trainers.config.datasets import Dataset
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.config.user_code import UserCodeError, files_of
from tuiapp.trainers.contract.lines import encode_line
from tuiapp.trainers.launch.examination import Examined
from tuiapp.trainers.sources.lookup import module_of
from tuiapp.trainers.sources.user_code import format_error


def find_facts(config: RunConfig) -> Dataset:
    """Examines a data set; raises DatasetError, and whatever the user's code raises."""
    found: Dataset = module_of(config.dataset).examine(config.dataset, config.image_size, config.seed)
    return found


def main() -> None:
    """Examines; whatever the user's code prints goes to stderr."""
    config = msgspec.json.decode(sys.stdin.buffer.read(), type=RunConfig)
    answer = os.dup(1)
    os.dup2(2, 1)
    try:
        found = Examined(data=find_facts(config))
    except (DatasetError, UserCodeError) as error:
        found = Examined(error=str(error))
    except (Exception, SystemExit) as error:
        found = Examined(traceback=format_error(error, files_of(config.dataset)))
    with open(answer, "wb") as file:
        file.write(encode_line(found))


if __name__ == "__main__":
    main()
