"""Version 1 of the exitd API."""
