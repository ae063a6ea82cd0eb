"""What runs containers: the interface of a runtime family, and which family a container has."""
