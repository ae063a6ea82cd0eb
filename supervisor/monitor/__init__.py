"""How the end of a process is observed: fifos, pidfds, run directories, shims, the keeper, and the kernel's own
reports."""
