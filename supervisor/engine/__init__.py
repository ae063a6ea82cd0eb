"""The owner of all state, and the services over it."""
