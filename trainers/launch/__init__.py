"""Starts and resumes runs, and detaches from them."""

from trainers.launch.begin import launch as launch
from trainers.launch.begin import record as record
from trainers.launch.begin import start as start
from trainers.launch.errors import LaunchError as LaunchError
from trainers.launch.processes import watch_queue as watch_queue
from trainers.launch.resume import Resumed as Resumed
from trainers.launch.resume import resume as resume
