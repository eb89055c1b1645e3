"""The cases, by what they reach for. Each module has its programs and its tuple `CASES`.

A program is bounded by itself (twice a limit, a few seconds), opens settings and devices without
writing, and does what would harm a host only after `only_inside` or `of_the_host` has told that it
is in a place of its own.
"""
