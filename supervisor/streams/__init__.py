"""Standard streams and logs of containers."""
