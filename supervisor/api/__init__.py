"""The API: messages to values and back, over gRPC and ttrpc. Nothing but `compare` imports grpc besides."""
