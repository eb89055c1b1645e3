"""A policy on disk: its weights, their shape, and the tokenizer they belong to.

A file is one line of JSON and then the weights as raw little-endian fp32, with a checksum over
everything, written to a temporary name and renamed. So a reader sees a whole file or none, damage
is noticed, and reading never runs anything: pickle has no part in it.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from hashlib import blake2b
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from tiltyard.core.errors import StoreError, UsageError
from tiltyard.training.bpe import Bpe
from tiltyard.training.model import ModelShape

FORMAT: Final = "tiltyard-policy-1"
FILE_BYTES_MAX: Final = 512 * 1024 * 1024
_DIGEST_BYTES = 32


class CheckpointDamaged(StoreError):
    """The file is not a whole checkpoint. Remove it, or take an earlier one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """Everything that sampling needs."""

    shape: ModelShape
    tokenizer: Bpe
    weights: Mapping[str, Tensor]
    notes: Mapping[str, Any]
    """Where it comes from: JSON values."""


def save_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Write it whole or not at all. Raises StoreError when the directory cannot be written."""
    arrays = {
        name: np.ascontiguousarray(weight.detach().float().numpy(), dtype="<f4")
        for name, weight in checkpoint.weights.items()
    }
    head = {
        "format": FORMAT,
        "shape": asdict(checkpoint.shape),
        "tokenizer": checkpoint.tokenizer.to_json(),
        "notes": dict(checkpoint.notes),
        "weights": [[name, list(array.shape)] for name, array in arrays.items()],
    }
    body = json.dumps(head).encode() + b"\n" + b"".join([a.tobytes() for a in arrays.values()])
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
            try:
                file.write(blake2b(body, digest_size=_DIGEST_BYTES).digest() + body)
                file.flush()
                os.fsync(file.fileno())
                Path(file.name).replace(path)
            except BaseException:
                Path(file.name).unlink(missing_ok=True)
                raise
    except OSError as error:
        raise StoreError(
            f"The checkpoint {path} cannot be written: {error.strerror}.",
            fix="Free space or name a directory that can be written.",
        ) from error


def load_checkpoint(path: Path) -> Checkpoint:
    """Read what `save_checkpoint` wrote.

    Raises CheckpointDamaged for a file that is cut, changed or something else, and UsageError when
    there is none.
    """
    try:
        if path.stat().st_size > FILE_BYTES_MAX:
            raise CheckpointDamaged(f"{path} is too large for a checkpoint.")
        content = path.read_bytes()
    except OSError as error:
        raise UsageError(
            f"The checkpoint {path} cannot be read: {error.strerror}.",
            fix="Name a file that a run has saved.",
        ) from error
    digest, body = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
    if blake2b(body, digest_size=_DIGEST_BYTES).digest() != digest:
        raise CheckpointDamaged(f"{path} does not match its checksum.", fix="Remove the file.")
    line, _, raw = body.partition(b"\n")
    try:
        head = json.loads(line)
        _refuse_other_format(head["format"])
        return Checkpoint(
            shape=ModelShape(**head["shape"]),
            tokenizer=Bpe.from_json(head["tokenizer"]),
            weights=_weights(head["weights"], raw),
            notes=head["notes"],
        )
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointDamaged(
            f"{path} is no checkpoint of format {FORMAT}: {error}.", fix="Remove the file."
        ) from error


def _refuse_other_format(form: object) -> None:
    if form != FORMAT:
        raise ValueError(f"it has format {form!a}")


def _weights(listed: list[tuple[str, list[int]]], raw: bytes) -> dict[str, Tensor]:
    flat = np.frombuffer(raw, dtype="<f4")
    weights = {}
    start = 0
    for name, shape in listed:
        count = int(np.prod(shape))
        weights[str(name)] = torch.from_numpy(flat[start : start + count].copy()).view(shape)
        start += count
    if start != len(flat):
        raise ValueError(f"{len(flat)} numbers where {start} are listed")
    return weights
