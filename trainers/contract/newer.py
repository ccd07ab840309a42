"""Runs written by another version of tuiapp: a later one's can be viewed, not changed; an earlier one's not read."""

from __future__ import annotations

from trainers.config.options import ConfigError
from trainers.config.run_config import SCHEMA
from trainers.contract.peek import NewerJournalError, peek_journal
from trainers.contract.rundir import RunDir
from trainers.contract.summary import read_config


def read_only_reason(run: RunDir) -> str:
    """Says that a later version wrote a run, in words; "" if none did."""
    try:
        peek_journal(run.journal)
        read_config(run)
    except NewerJournalError:
        return "a newer version of tuiapp wrote its journal: update tuiapp to resume or change it"
    except ConfigError as error:
        if any(problem.key == "schema" for problem in error.problems):
            return f"a newer version of tuiapp wrote its run.toml, this one knows schema {SCHEMA}: update tuiapp"
    except OSError:
        return ""
    return ""


def unreadable_reason(run: RunDir) -> str:
    """Why this version does not read an earlier version's journal, in words; "" if it does."""
    try:
        return peek_journal(run.journal).older
    except (NewerJournalError, OSError):
        return ""
