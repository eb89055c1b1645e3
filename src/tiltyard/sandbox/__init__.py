"""Isolated places to run untrusted programs in.

A provider starts a supervisor in an isolated place and hands back a byte stream to it; everything
else is spoken with the supervisor in one protocol, the same for every provider. This room never
touches the ledger and never decides what a result is worth.
"""
