"""Keras: models, optimizers and state, on JAX or PyTorch."""
