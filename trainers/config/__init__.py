"""What a run is to do, and on what: configuration keys, backends and models, data, devices and their placement."""
