"""The messages in the frames of ttrpc 1.0 to 1.2."""
