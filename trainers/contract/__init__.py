"""What is written between processes: events and the journal, the run directory and its contents."""
