"""The `repair` pack: short Python sources with one faulty line, in unlimited number.

`generator.make_task` is the way in. Everything here is a pure function of its seed; what is
executed is this pack's own template code and its mutants, never an answer of a policy.
"""
