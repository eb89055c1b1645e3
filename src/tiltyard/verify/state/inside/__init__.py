"""What runs inside a sandbox; imports no Tiltyard."""
