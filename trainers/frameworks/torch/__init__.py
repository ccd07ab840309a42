"""PyTorch: process groups, data on the device, models and state."""
