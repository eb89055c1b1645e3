"""Settings from the environment: the only place that reads it.

A setting is here because somebody turns it: where big files go, how much is logged, the key of a
model server. Everything else is an option of a command or a named constant. `docs/settings.md`
describes every one, and a test holds it to that.
"""

import os
import tempfile
from enum import StrEnum
from pathlib import Path

from pydantic import Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from tiltyard.core.errors import UsageError

PREFIX = "TILTYARD_"


class LogLevel(StrEnum):
    """How much is logged; each level includes the ones after it."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def _cache_dir() -> Path:
    # The XDG rules say that a relative path is to be ignored.
    named = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (named if named.is_absolute() else Path("~/.cache").expanduser()) / "tiltyard"


def _runtime_dir() -> Path:
    # Made for us at login, gone at the last logout; where there is none, the usual other place.
    named = Path(os.environ.get("XDG_RUNTIME_DIR", ""))
    if named.is_absolute() and named.is_dir():
        return named / "tiltyard"
    return Path(tempfile.gettempdir()) / f"tiltyard-{os.geteuid()}"


class Settings(BaseSettings):
    """What the environment says, checked. Make one with `load_settings`."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, env_ignore_empty=True, frozen=True)

    cache_dir: Path = Field(default_factory=_cache_dir)
    """Where what can be made again is kept, such as the demo's warm start and what runs of
    repositories' tests with their references have shown."""
    runtime_dir: Path = Field(default_factory=_runtime_dir)
    """Where the socket of `tiltyard sandbox`'s daemon is; a directory of the user's own."""
    runs_dir: Path = Path("runs")
    """Where run directories are made unless a command names another place."""
    log_level: LogLevel = LogLevel.WARNING
    terminal: str = Field(default="dumb", validation_alias="TERM")
    """What kind of terminal the user has, for programs that are given it."""
    openai_api_key: SecretStr | None = Field(default=None, validation_alias="OPENAI_API_KEY")
    """Sent to the model server of an `openai:` policy; None sends no key."""


def environment_names() -> list[str]:
    """The environment variables that are read, one for each setting."""
    return [
        str(field.validation_alias or f"{PREFIX}{name.upper()}")
        for name, field in Settings.model_fields.items()
    ]


def load_settings() -> Settings:
    """Read the environment.

    Raises `UsageError` for a value that does not fit and for a `TILTYARD_` variable that is no
    setting, because a misspelt name would otherwise silently do nothing.
    """
    known = environment_names()
    unknown = sorted(name for name in os.environ if name.startswith(PREFIX) and name not in known)
    if unknown:
        raise UsageError(
            f"The environment variable {unknown[0]} is not a setting.",
            fix=f"Unset it, or use one of {', '.join(known)}.",
        )
    try:
        return Settings()
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = str(first["loc"][0])
        name = field if field in known else f"{PREFIX}{field.upper()}"
        raise UsageError(
            f"The environment variable {name} is not usable: {first['msg']}.",
            fix="Correct it or unset it; docs/settings.md says what it may be.",
        ) from None
    except RuntimeError:  # from expanduser: there is no HOME and the user has no account
        raise UsageError(
            "There is no home directory to keep the cache in.",
            fix=f"Set {PREFIX}CACHE_DIR or HOME.",
        ) from None
