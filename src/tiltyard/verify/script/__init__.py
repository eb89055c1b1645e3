"""Script mode: a task's own `test.sh` in a fresh sandbox, its answer a number in a file."""
