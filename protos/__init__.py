"""Generated protobuf stubs live in this package; the .proto files are beside it in folders of their own."""
