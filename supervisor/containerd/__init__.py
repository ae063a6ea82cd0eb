"""exitd as a runtime of containerd's: the service behind containerd-shim-exitd-v2, and its parts."""
