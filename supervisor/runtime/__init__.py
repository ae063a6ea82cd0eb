"""What runs containers: the interface of a runtime family, and the choice of the family for a container."""
