"""`python -m tuiapp.trainers.sources.examine`: a configuration on stdin, facts about its data on stdout, as JSON."""

from __future__ import annotations

import os
import sys

import msgspec

from tuiapp.trainers.config.data_files import DatasetError
from tuiapp.trainers.config.run_config import RunConfig
from tuiapp.trainers.config.user_code import UserCodeError, files_of
from tuiapp.trainers.contract.lines import encode_line
from tuiapp.trainers.launch.examination import Examined
from tuiapp.trainers.sources.prepare import module_of
from tuiapp.trainers.sources.user_code import format_error


def main() -> None:
    """Examines a data set; whatever the user's code prints goes to stderr."""
    config = msgspec.json.decode(sys.stdin.buffer.read(), type=RunConfig)
    stdout = os.dup(1)
    os.dup2(2, 1)
    try:
        source = module_of(config.dataset)
        answer = Examined(data=source.examine(config.dataset, config.image_size, config.seed))
    except (DatasetError, UserCodeError) as error:
        answer = Examined(error=str(error))
    except (Exception, SystemExit) as error:
        answer = Examined(traceback=format_error(error, files_of(config.dataset)))
    with open(stdout, "wb") as file:
        file.write(encode_line(answer))


if __name__ == "__main__":
    main()
