"""Tiltyard: isolated sandboxes, verified rewards and kept trajectories for agent reinforcement learning.

The names re-exported here are the ones a script needs. Importing this package has no effect
beyond defining them: no process is started, no file is read.
"""
