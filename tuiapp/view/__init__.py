"""What is drawn, without Textual: charts, axes, devices, tables and their words."""
