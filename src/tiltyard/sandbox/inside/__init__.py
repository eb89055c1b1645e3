"""Programs that run inside a sandbox, shipped into it as text. They import no Tiltyard."""
