"""Measures of a right solution: what it costs, how that grows, and whether it leaks.

All are taken in cold processes that hold nothing but what is measured, and billed from outside.
"""
