"""Frozen values and pure rules: what a container, an exec, an end is, and what follows from what."""
