"""The vocabulary every room shares: frozen values, closed sets and errors, with no I/O at all.

Nothing here reads a clock, a file, the network, the environment or a random source, so every
other room may import it and every value in it can be built in a test.
"""
