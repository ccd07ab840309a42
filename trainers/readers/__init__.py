"""What other tools write, read while they write it: a file each."""
