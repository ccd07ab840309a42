"""What is written between processes: events and the journal, the run directory and what lies in it."""
