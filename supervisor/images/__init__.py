"""Images: from the name on a command line to the directories that a container's root is made of."""
