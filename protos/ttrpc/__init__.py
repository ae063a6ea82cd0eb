"""ttrpc, the RPC protocol of containerd and its shims."""
