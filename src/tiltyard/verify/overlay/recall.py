"""What runs of a suite with its reference have shown, kept on disk for the next process.

Finding out which copies of a suite's tests fail takes ten to twenty runs, and a command that judges
one submission would make them every time. Kept are the reports, by what was run, and never what is
concluded of them: other code concludes anew, and asks for runs that were never made.

Not everything that runs depend on has a digest: what the machine has installed, say. So two runs
in which nothing is false are made each time: of the suite as it is, and with what is written out
in it. Where one shows anything else than it did, all that was kept is forgotten.
"""

import asyncio
import gzip
import zlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TypeVar

import structlog
from pydantic import TypeAdapter, ValidationError

from tiltyard.verify.expected import digest_of
from tiltyard.verify.overlay.outcomes import Trial
from tiltyard.verify.overlay.plan import Plan
from tiltyard.verify.overlay.session import Report

FILES_MAX = 200
"""Suites that are kept, those used last."""
BYTES_MAX = 32 << 20
"""Of one suite's file: a larger one is not read."""

_REPORTS = TypeAdapter(dict[str, Report])
_log = structlog.get_logger(__name__)

Known = TypeVar("Known")


class Recall:
    """Keeps reports in files of a directory. Without a directory it keeps nothing."""

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory

    async def learn(
        self, key: str, trial: Trial, learn: Callable[[Trial], Awaitable[Known]]
    ) -> Known:
        """What `learn` finds out with `trial`, or with what that said in another process.

        `key` is a digest of all that runs depend on and that has one. Raises what `learn` does.
        A directory that cannot be used costs time, and nothing else.
        """
        if self._directory is None:
            return await learn(trial)
        path = self._directory / f"overlay-{key}.json.gz"
        recalled = _Recalled(trial, await asyncio.to_thread(_read, path))
        try:
            known = await learn(recalled)
        except _ChangedError:
            recalled = _Recalled(trial, {})
            known = await learn(recalled)
        if recalled.heard != recalled.kept:
            await asyncio.to_thread(_keep, path, recalled.heard)
        return known


class _ChangedError(Exception):
    """What was kept is no longer what runs show."""


class _Recalled:
    """A trial that asks what was kept first."""

    def __init__(self, trial: Trial, kept: Mapping[str, Report]) -> None:
        self._trial = trial
        self.kept = kept
        self._asked = self._began = self._wrote = False
        """Whether anything was taken from what was kept; and whether each of the two runs that are
        always made has been."""
        self.heard: dict[str, Report] = {}

    async def __call__(self, plan: Plan, tests: int) -> Report:
        name = _name_of(plan)
        kept = self.kept.get(name)
        always = self._is_always_made(plan)
        if kept is not None and not always:
            self._asked = True
            report = kept
        else:
            report = await self._trial(plan, tests)
            if always and self.kept and not _alike(kept, report, asked=self._asked):
                raise _ChangedError
        if report.ended is None:  # else the machine may have been busy
            self.heard[name] = replace(report, cpu_s=0.0)
        return report

    def _is_always_made(self, plan: Plan) -> bool:
        if not self._began:
            self._began = True
            return True
        if self._wrote or plan.by_name or not plan.forms.written:
            return False
        self._wrote = True
        return True


def _name_of(plan: Plan) -> str:
    files = [part for path, text in sorted(plan.files.items()) for part in (path.encode(), text)]
    return digest_of(repr(plan.chosen).encode(), *files)


def _alike(kept: Report | None, report: Report, *, asked: bool) -> bool:
    if kept is None:
        return not asked  # nobody was told anything that this could belie
    return _statuses(kept) == _statuses(report) and kept.errors == report.errors


def _statuses(report: Report) -> dict[str, list[str]]:
    return {test_id: [status for status, _ in said] for test_id, said in report.results.items()}


def _read(path: Path) -> Mapping[str, Report]:
    """What was kept; nothing where that cannot be read."""
    try:
        if path.stat().st_size > BYTES_MAX:
            return {}
        reports = _REPORTS.validate_json(gzip.decompress(path.read_bytes()))
        path.touch()
    except FileNotFoundError:
        return {}
    except (OSError, EOFError, zlib.error, ValidationError) as error:
        _log.info("reports_not_read", path=str(path), error=str(error))
        return {}
    return reports


def _keep(path: Path, reports: Mapping[str, Report]) -> None:
    content = gzip.compress(_REPORTS.dump_json(dict(sorted(reports.items()))), mtime=0)
    if len(content) > BYTES_MAX:
        return
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with NamedTemporaryFile(dir=path.parent, prefix=".overlay-", delete=False) as draft:
            try:
                draft.write(content)
                draft.flush()
                Path(draft.name).replace(path)
            except BaseException:
                Path(draft.name).unlink(missing_ok=True)
                raise
        files = [(each.stat().st_mtime, each) for each in path.parent.glob("overlay-*.json.gz")]
        for _, each in sorted(files, reverse=True)[FILES_MAX:]:
            each.unlink(missing_ok=True)
    except OSError as error:
        _log.info("reports_not_kept", path=str(path), error=str(error))
