"""What a view knows, in pure Python: the run state (the fold), bounded series, text formats."""
