"""What runs inside a rank's process: reporting, checkpoints, the training loop, evaluation and schedules."""
