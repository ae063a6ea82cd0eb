"""A soak: many lives through one exitd, and whether anything of it grows with them."""
