"""Assertions of a task on the state in which an agent left its sandbox."""
