"""`python -m tiltyard` is the `tiltyard` command."""

from tiltyard.cli.main import run

if __name__ == "__main__":
    run()
