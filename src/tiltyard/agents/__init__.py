"""The agents room: what produces a rollout's turns, and how an answer's text becomes code.

A policy is asked with the public parts of a task and gives text; it never sees a reference or a
hidden test. What a model writes is data here: read, bounded and passed on, never executed. A model
that answers badly is the model's record; a server that does not answer is a `PolicyError`.
"""

from tiltyard.agents.fenced import read_fenced
from tiltyard.agents.naming import parse_judge, parse_policy
from tiltyard.agents.openai import OpenAIPolicy
from tiltyard.agents.script import ScriptedPolicy

__all__ = ["OpenAIPolicy", "ScriptedPolicy", "parse_judge", "parse_policy", "read_fenced"]
