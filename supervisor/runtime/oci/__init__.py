"""The OCI side: runtime spec, root file systems, cgroups, runtime commands."""
