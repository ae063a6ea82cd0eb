"""The configuration: its file, what is in force, and how that changes."""
