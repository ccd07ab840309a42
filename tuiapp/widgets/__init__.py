"""One public widget per file, named after it."""
