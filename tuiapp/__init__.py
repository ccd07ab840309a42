"""The terminal program: configures, launches and watches training runs; imports no training framework."""

__version__ = "0.2.0"
