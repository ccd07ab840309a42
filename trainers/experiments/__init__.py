"""Many runs: the queue and its keeper, and what is made of it."""
