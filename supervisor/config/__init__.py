"""The configuration: its file, the values in force, and how they change."""
