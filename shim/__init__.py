"""The programs beside each container and their contracts with the daemon; never imports supervisor or asyncio."""
