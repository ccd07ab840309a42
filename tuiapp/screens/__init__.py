"""One screen per file, with its stylesheet beside it."""
