"""Static checks: what a solution's source shows without being run."""
