"""What a submission was really worth, by execution, in a way that it cannot forge.

Only this room makes a reward. The solution's channel carries values, never verdicts; what is
expected stays in a process that never runs the solution's code.
"""
