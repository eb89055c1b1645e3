"""Programs that read sources inside a sandbox; shipped as text, they import nothing of Tiltyard."""
