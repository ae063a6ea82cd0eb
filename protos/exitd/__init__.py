"""exitd's own API, version 1 and later."""
