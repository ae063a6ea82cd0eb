"""The exit protocol as a model, small enough that every state of it can be visited (docs/protocol.md)."""
