"""From rewards to weights: the built-in policy, its warm start, and the learner that improves it.

Only the learner's own process imports PyTorch. What the process that owns the sandboxes needs
(the client, the batched policy, the answer format) works without it, so that process stays small
and never waits for a gradient step. Nothing in this room makes a reward or runs an answer.
"""
