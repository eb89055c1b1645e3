"""A policy's name on the command line."""

from pathlib import Path

import pytest
from pydantic import SecretStr

from tiltyard.agents import OpenAIPolicy, ScriptedPolicy, parse_judge, parse_policy
from tiltyard.agents.openai import endpoint
from tiltyard.core.errors import UsageError


def test_a_script_is_named_by_its_file(tmp_path: Path) -> None:
    (tmp_path / "a#b.json").write_text('{"*": ["x"]}')
    policy = parse_policy(f"scripted:{tmp_path}/a#b.json")
    assert isinstance(policy, ScriptedPolicy)
    assert policy.name == f"scripted:{tmp_path}/a#b.json"


async def test_a_server_is_named_by_url_and_model() -> None:
    name = "openai:http://127.0.0.1:8000/v1#org/model-7b#2"
    policy = parse_policy(name, api_key=SecretStr("a-secret-key"))
    assert isinstance(policy, OpenAIPolicy)
    assert policy.name == name
    assert "a-secret-key" not in repr(vars(policy))
    await policy.aclose()


@pytest.mark.parametrize(
    "url", ["http://h", "http://h/", "http://h/v1", "http://h/v1/", "http://h/v1/chat/completions"]
)
def test_urls_as_people_write_them(url: str) -> None:
    assert endpoint(url) == "http://h/v1/chat/completions"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "'' is not a policy's name"),
        ("gpt", "'gpt' is not a policy's name"),
        ("scripted:", "names no policy"),
        ("hf:model", "names no policy"),
        ("openai:http://h:8000", "names no model"),
        ("openai:http://h:8000#", "names no model"),
        ("openai:h:8000#m", "no usable URL"),
        ("openai:ftp://h#m", "no usable URL"),
        ("openai:http://#m", "no usable URL"),
        ("openai:http://h:99999#m", "no usable URL"),
        ("openai:http://[::1#m", "no usable URL"),
        ("openai:http://me:secret@h#m", "would be recorded"),
        ("openai:http://h?key=secret#m", "would be recorded"),
    ],
)
def test_other_names_are_explained(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        parse_policy(text)
    assert caught.value.fix
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "names no judge"),
        ("scripted:x.json", "names no judge"),
        ("openai:http://h:8000", "names no judge"),
        ("openai:h:8000#m", "no usable URL"),
        ("openai:http://me:secret@h#m", "would be recorded"),
    ],
)
def test_a_judge_is_a_served_model(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        parse_judge(text)
    assert "secret" not in str(caught.value)
