"""The native provider: sandboxes from the kernel's namespaces, without Docker or root."""
