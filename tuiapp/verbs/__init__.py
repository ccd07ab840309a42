"""The commands, a module per group of verbs; each imports heavy modules only when it runs."""
