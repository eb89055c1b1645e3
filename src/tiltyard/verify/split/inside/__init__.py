"""Programs of split mode that run inside a sandbox, shipped into it as text."""
