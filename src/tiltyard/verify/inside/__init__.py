"""What modes ship into their sandboxes in common. Imports nothing of Tiltyard."""
