"""`python -m trainers.sources.examine`: a configuration on stdin, the facts about its data on stdout: JSON, a line."""

from __future__ import annotations

import os
import sys

import msgspec

from trainers.config.data_files import DatasetError
from trainers.config.datasets import Dataset
from trainers.config.run_config import RunConfig
from trainers.config.user_code import UserCodeError, files_of
from trainers.contract.lines import encode_line
from trainers.launch.examination import Examined
from trainers.sources.lookup import module_of
from trainers.sources.user_code import format_error


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
