"""What runs inside the sandboxes of overlay mode. Imports nothing of Tiltyard."""
