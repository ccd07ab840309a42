"""JAX with Flax: devices and meshes, models and state."""
