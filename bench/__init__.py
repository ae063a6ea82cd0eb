"""exitd measured, beside the shims that others use, in the same run and in turns."""
