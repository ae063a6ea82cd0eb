"""What containerd's helper programs and exitd say to each other beside the Task service."""
