"""exitd as a client of other shims: any containerd shim v2 binary, behind `supervisor/runtime/sandbox.py`."""
