"""What other tools' files say, in the API's messages: Kubernetes manifests and CRI configurations. Pure."""
