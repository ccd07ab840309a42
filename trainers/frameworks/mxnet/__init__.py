"""MXNet Gluon: models, optimizers and state."""
