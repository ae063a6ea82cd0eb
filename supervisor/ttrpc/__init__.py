"""ttrpc, containerd's RPC protocol over unix sockets: pure cores, an asyncio server and client, a blocking client."""
