"""exitd as a client of other shims: any containerd shim v2 binary behind the seam of `supervisor/sandbox.py`."""
