"""What containerd and its shims say to each other. Only the wire is shared: the files are written from its description,
and the messages have containerd's full names because these are the type urls."""
