"""The same models, each in its framework's idiom."""
