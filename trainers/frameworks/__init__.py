"""What the backends of one framework share, a folder each: devices, models, optimizers and state."""
