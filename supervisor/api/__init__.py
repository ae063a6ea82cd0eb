"""The API's two doors: messages to facts and back, and gRPC. The only package that imports grpc."""
