"""Isolated sandboxes, verified rewards and kept trajectories for agent reinforcement learning.

Importing this package has no effect: no process is started, no file is read.
"""

__version__ = "0.1.0"
