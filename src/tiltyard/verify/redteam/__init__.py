"""A collection of cheats, made for whatever task is to be tried.

A cheat is a submission whose worth is known beforehand: that of its *twin*, the same answer without
the trick. Mostly the twin is a wrong answer. Nothing here judges or runs anything: `cheats_for`
makes values, and what a verifier does with them is tried in `tiltyard.tasks.redteam`.

Most cheats are text, in `classes/`, one file for each class of the field's catalogue; `blocks.py`
has their form. Those that need more than text are in `shipped.py` and `statics.py`.
"""
