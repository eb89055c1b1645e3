"""Settings: defaults, the environment's word, and clear refusals."""

from pathlib import Path

import pytest

from tiltyard.config import LogLevel, environment_names, load_settings
from tiltyard.core.errors import UsageError


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*environment_names(), "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)


def test_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/somewhere")
    settings = load_settings()
    assert settings.cache_dir == Path("/somewhere/.cache/tiltyard")
    assert settings.runs_dir == Path("runs")
    assert settings.log_level is LogLevel.WARNING
    assert settings.openai_api_key is None


@pytest.mark.parametrize(
    ("named", "expected"),
    [("/cache", "/cache/tiltyard"), ("relative", "/somewhere/.cache/tiltyard")],
)
def test_cache_follows_the_xdg_rules(
    monkeypatch: pytest.MonkeyPatch, named: str, expected: str
) -> None:
    monkeypatch.setenv("HOME", "/somewhere")
    monkeypatch.setenv("XDG_CACHE_HOME", named)
    assert load_settings().cache_dir == Path(expected)


def test_the_environment_is_read_and_the_key_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILTYARD_LOG_LEVEL", "debug")
    monkeypatch.setenv("TILTYARD_RUNS_DIR", "/big/disk")
    monkeypatch.setenv("OPENAI_API_KEY", "a-secret-key")
    settings = load_settings()
    assert settings.log_level is LogLevel.DEBUG
    assert settings.runs_dir == Path("/big/disk")
    assert settings.openai_api_key is not None
    assert settings.openai_api_key.get_secret_value() == "a-secret-key"
    assert "a-secret-key" not in repr(settings)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("TILTYARD_LOG_LEVEL", "loud", "TILTYARD_LOG_LEVEL is not usable"),
        ("TILTYARD_CAHCE_DIR", "/cache", "TILTYARD_CAHCE_DIR is not a setting"),
    ],
)
def test_what_does_not_fit_is_named(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, message: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(UsageError, match=message) as caught:
        load_settings()
    assert caught.value.fix
