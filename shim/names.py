"""What the files of a run directory are called, and how long the path of the state directory above it may be: for the
daemon, a shim, and the user who starts one by hand."""

FIFO, LOCK, PLAN, CREATED = "exit_fifo", "lock", "plan", "created"  # the record's name is in record.py
PID_FILE, RUNTIME_LOG, RUNTIME_ROOT = "pid", "runtime.log", "rt"
STATE = "state"  # of a task of containerd's that lives: a link, see supervisor/containerd/standing.py
SHARED_CGROUP = "shared-cgroup"  # others live in the container's cgroup, of whom none is to die with its init
STATE_PATH_LIMIT = 64  # bytes; sockets and run directories below it must fit unix(7)'s 108
