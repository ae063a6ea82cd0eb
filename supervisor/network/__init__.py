"""Networks by CNI: configurations, the requests to plugins and their answers, what is kept of an attachment, and its
namespace.

https://github.com/containernetworking/cni/blob/spec-v1.1.0/SPEC.md, and its versions 0.3.0 to 1.0.0.
"""
