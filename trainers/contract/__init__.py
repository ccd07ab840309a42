"""What both packages stand on: configuration, presets, catalog, events, journal, run directory. No framework."""
