"""The twins, a file for each class. Made by scripts/make_twins.py: do not edit."""
