"""Overlay mode: tests and project in one process, watched by tests that must fail."""
