"""What a view shows, in pure Python: the run state (a fold over events), bounded series, text formats."""
