"""The user's data on disk: presets, settings, and runs to find, list, remove and export."""
