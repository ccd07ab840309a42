"""What the command line does, a module per group of verbs; each imports what is heavy only when it is used."""
