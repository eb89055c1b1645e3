"""The text of what is shipped into sandboxes. It is read as text; what of it runs, runs there."""

from importlib import resources


def shipped(module: str, *names: str) -> dict[str, str]:
    """Files of the `inside` directory beside `module`, by their names there."""
    inside = resources.files(module.rpartition(".")[0]) / "inside"
    return {name: (inside / name).read_text() for name in names}


def shared(*names: str) -> dict[str, str]:
    """The codec, by which everything in a run answers, and others of `verify/inside`, such as
    `channel.py` and `recorder.py`."""
    return shipped(__name__, "codec.py", *names)
