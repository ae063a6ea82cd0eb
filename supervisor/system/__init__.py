"""The kernel and the host as exitd uses them: clock, inotify, threads, descriptors, the service manager."""
