"""What exitd must not forget: SQLite, its rows, and the numbered event log."""
