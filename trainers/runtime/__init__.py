"""One run on one machine: supervisor, reaper, ranks, reporter, telemetry."""
