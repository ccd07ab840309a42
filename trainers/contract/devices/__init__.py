"""What devices there are, what a run gets of them, what it takes on them and makes of them."""
