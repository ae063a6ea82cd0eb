"""exitctl, the command line."""
