"""What runs inside people's own processes: the reporting API and how a script becomes a run."""
