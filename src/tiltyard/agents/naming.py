"""From a policy's name on the command line to the policy."""

from pathlib import Path
from urllib.parse import urlsplit

from pydantic import SecretStr

from tiltyard.agents.openai import OpenAIPolicy
from tiltyard.agents.script import ScriptedPolicy
from tiltyard.core.errors import UsageError

_FORMS = "Use scripted:FILE, or openai:URL#MODEL as in openai:http://127.0.0.1:8000/v1#my-model."


def parse_policy(
    text: str, *, api_key: SecretStr | None = None, seed: int = 0
) -> ScriptedPolicy | OpenAIPolicy:
    """The policy that `text` names. `seed` is the run's; with each prompt it fixes the sampling.

    Raises `UsageError` when the text names none, or a script that cannot be used.
    """
    kind, colon, rest = text.partition(":")
    if kind == "scripted" and rest:
        return ScriptedPolicy(Path(rest))
    if kind == "openai" and rest:
        url, _, model = rest.partition("#")
        _require_url(url, text)
        if not model:
            raise UsageError(f"The policy {text!r} names no model.", fix=_FORMS)
        return OpenAIPolicy(url=url, model=model, api_key=api_key, seed=seed)
    what = f"{text!r} names no policy." if colon else f"{text!r} is not a policy's name."
    raise UsageError(what, fix=_FORMS)


def parse_judge(text: str, *, api_key: SecretStr | None = None) -> OpenAIPolicy:
    """The model that `text` names, for asking it about submissions: the likeliest answer only.

    Raises `UsageError` when the text names no model behind a server.
    """
    kind, _, rest = text.partition(":")
    url, _, model = rest.partition("#")
    if kind != "openai" or not model:
        raise UsageError(
            f"{text!r} names no judge.", fix="Use openai:URL#MODEL: it must be a served model."
        )
    _require_url(url, text)
    return OpenAIPolicy(url=url, model=model, api_key=api_key, temperature=0.0)


def _require_url(url: str, text: str) -> None:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
        parts = urlsplit("")
    if parts.username is not None or parts.password is not None or parts.query:
        # Either may be a key, and a policy's name is written into every record.
        raise UsageError(
            "The URL holds a user name, password or query, which would be recorded.",
            fix="Put the key into OPENAI_API_KEY and leave it out of the URL.",
        )
    if not usable:
        raise UsageError(f"{text!r} has no usable URL.", fix=_FORMS)
