"""What can be done to runs, once and with its words; the command line, screens and assistants call it.

An action is a file: why it cannot be done (`refusal`), what is asked before (`question`), and what does it (`do`), to
one run or several. It knows neither Textual nor argparse: a verb prints its `Outcome`, a screen shows it.
"""
