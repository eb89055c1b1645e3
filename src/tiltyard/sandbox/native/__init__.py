"""The native provider: sandboxes from the kernel's own namespaces, without Docker and without root."""
