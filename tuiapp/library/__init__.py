"""The user's things on disk: presets, settings, and runs to find, list, remove and export."""
