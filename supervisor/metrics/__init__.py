"""What exitd shows of itself to Prometheus, and whether it serves, over HTTP."""
