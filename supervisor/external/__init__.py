"""Containers that other engines run: watched, and left alone."""
