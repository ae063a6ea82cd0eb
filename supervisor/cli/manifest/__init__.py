"""Converts other tools' files to the API's messages: Kubernetes manifests and CRI configurations. Pure."""
