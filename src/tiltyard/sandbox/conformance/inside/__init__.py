"""What is put in front of hostile programs; runs inside a sandbox and imports nothing of ours."""
