"""`python -m tiltyard` is the command `tiltyard`."""

from tiltyard.cli.main import run

if __name__ == "__main__":
    run()
