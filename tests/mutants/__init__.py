"""Mistakes put into the product one at a time, to see which of them no test notices. Run by hand, see __main__.py."""
