"""Starts and resumes runs, and detaches from them."""

from tuiapp.trainers.launch.begin import launch as launch
from tuiapp.trainers.launch.begin import record as record
from tuiapp.trainers.launch.begin import start as start
from tuiapp.trainers.launch.prepare import LaunchError as LaunchError
from tuiapp.trainers.launch.processes import watch_queue as watch_queue
from tuiapp.trainers.launch.resume import Resumed as Resumed
from tuiapp.trainers.launch.resume import resume as resume
