"""Shipped into sandboxes as text; imports nothing of Tiltyard."""
