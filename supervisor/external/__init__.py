"""Containers that other engines run: exitd watches them, and leaves them alone."""
