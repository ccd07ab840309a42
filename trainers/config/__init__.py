"""What to run, and on what: configuration keys, backends and models, data, devices and their placement."""
