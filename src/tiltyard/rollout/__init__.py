"""Attempts of a policy at tasks: one episode, groups of them, many at once.

An episode is the field's textbook loop: generate, write, run, feed back, revise, verify, reward,
release, record. One failing episode never stops another, and a fault of ours is never a reward.
"""
