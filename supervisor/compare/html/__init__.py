"""The comparison as one page that needs nothing outside itself, and as one picture."""
