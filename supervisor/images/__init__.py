"""Images: from the word on a command line to the directories a container's root is made of."""
