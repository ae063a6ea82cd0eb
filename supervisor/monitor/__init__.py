"""How one end is seen: fifos, pidfds, run directories, shims, the keeper, and what the kernel says."""
