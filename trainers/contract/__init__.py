"""What both packages stand on: configuration, presets, catalog, events, journal, run directory. No framework.

`data` tells what the data sets are, `devices` what there is to train on, `records` what lies beside a journal.
"""
