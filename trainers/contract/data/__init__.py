"""What the data sets are, and what can be told of one before it is loaded."""
