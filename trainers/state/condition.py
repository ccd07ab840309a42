"""Judgements in words: the condition of a rank, and the headline of a run."""

from __future__ import annotations

from itertools import islice

from tuiapp.trainers.state.messages import describe_blemishes, describe_failure, describe_result
from tuiapp.trainers.state.rank_state import RankState
from tuiapp.trainers.state.run_state import RunState, Stall
from tuiapp.trainers.state.signs import SIGNS, Condition, Severity
from tuiapp.trainers.state.text import (
    format_count,
    format_duration,
    format_metric,
    format_percent,
    join_words,
    plural,
    sanitize,
)

SLOW_BEHIND_STEPS = 3
SLOW_SKEW = 0.25  # a rank whose steps take this much longer than the ranks' median is slow
SLOW_BEHIND_S = 1.0
"""A rank further behind in time and in steps is slow; less may come from when ranks report."""


def run_words(state: RunState, now: float) -> tuple[str, str]:
    """Returns the name of a run's state as in `SIGNS`, and how it is shown, with how far or for how long."""
    if state.reading is not None:
        return "reading", f"READING {format_percent(state.reading)}"
    if (stall := state.stall) is not None:
        return "stalled", f"STALLED {format_duration(max(0.0, now - stall.since))}"
    return state.status, state.status.upper()


def rank_condition(
    state: RunState,
    rank: RankState,
    behind: int,
    now: float,
    skew: float | None = None,
    stall: Stall | None = None,
    newest: float | None = None,
) -> Condition:
    """Returns a rank's condition.

    `behind` is in steps behind the leader, `now` in seconds since the epoch; `skew` is the rank's step time over the
    ranks' median, less 1, or None where not known; `stall` is the state's; `newest` is when any rank reported last, or
    None where there is no other.
    """
    if rank.failure is not None:
        first = "failed first: " if len(state.failures) > 1 and rank.failure is state.first_failure else ""
        return Condition(first + (rank.failure.signal or f"exit {rank.failure.exit_code}"), "error")
    if not state.is_live:
        if state.status == "completed":
            return Condition("done", "good", SIGNS["completed"].symbol)
        return Condition("ended", "info", SIGNS["stopped"].symbol)
    if not rank.last_time:
        return Condition("queued" if state.status == "queued" else "starting", "info")
    if state.reading is not None:
        return Condition("reading", "info")
    silent = now - rank.last_time
    if stall is not None and rank.phase != "done":
        lasted = format_duration(max(0.0, now - stall.since))
        if stall.culprits and rank.rank not in stall.culprits:
            return Condition(f"waiting {lasted}", "info")
        return Condition(f"{stall.verb} {lasted}", stall.alert.severity, SIGNS["stalled"].symbol)
    if state.replicas and any(replica.rank == rank.rank for replica in state.replicas.differing):
        return Condition("differs", "error")
    if rank.phase == "training" and silent > rank.silent_after_s:
        # Where all are silent alike, one waits for another, and it is not known yet which.
        alone = newest is None or newest - rank.last_time > rank.silent_after_s
        return Condition(f"silent {format_duration(silent)}", "warning" if alone else "info")
    lag_s = behind * (rank.pace.step_s or 0.0)
    if behind > SLOW_BEHIND_STEPS and lag_s > SLOW_BEHIND_S:
        return Condition("slow", "warning")
    if skew is not None and skew > SLOW_SKEW and rank.phase == "training":
        return Condition(f"slow +{100 * skew:.0f} %", "warning")
    phase = rank.phase or ("running" if rank.step else "preparing")
    return Condition(phase, "good" if phase in ("training", "running") else "info", SIGNS["running"].symbol)


def headline(state: RunState) -> Condition | None:
    """Returns the most important fact, or None."""
    condition, missing = _headline(state), state.gaps.short
    if not missing:
        return condition
    if condition is None:
        return Condition(state.gaps.words, "warning")
    severity: Severity = condition.severity if condition.severity == "error" else "warning"
    return Condition(join_words([condition.text, missing]), severity, condition.symbol)


def _headline(state: RunState) -> Condition | None:
    if state.newer:
        return Condition(f"{state.newer}. What is shown may be wrong, and nothing can be changed here", "warning")
    if state.reading is not None:
        return None
    if state.status == "failed":
        return Condition(join_words([_why_failed(state), _how_to_go_on(state), *_script_words(state)]), "error")
    if state.status == "lost":
        text = "the supervisor died: it was killed, or the machine went down. See supervisor.log"
        if state.removed:
            text = "the run's directory was removed: no more data can be read"
        return Condition(join_words([text, _how_to_go_on(state), *_script_words(state)]), "error")
    if state.ended is not None:
        return _summary(state)
    if state.trouble:
        return Condition(state.trouble, "error")
    if state.failures:
        first = state.first_failure
        return Condition(describe_failure(first), "error") if first else None
    if state.stop_requested is not None:
        text = state.stop_words
        again = "" if state.stop_requested.now else f"s again: stop now{' without it' * ('checkpoint' in text)}"
        return Condition(join_words([text, again]), "warning", SIGNS["stopped"].symbol)
    return _latest_alert(state)


def _how_to_go_on(state: RunState) -> str:
    if not state.can_resume:
        return ""
    if state.is_script:
        return "u: start it again"
    return f"u: resume from step {state.resume_step:,}" if state.resume_step else "u: resume if a checkpoint was saved"


def _why_failed(state: RunState) -> str:
    first = state.first_failure
    if first is not None:
        later = len({failure.rank for failure in state.failures}) - 1
        return describe_failure(first) + (f" · {plural(later, 'more rank')} failed after it" if later else "")
    return sanitize(state.ended.reason, 300) if state.ended and state.ended.reason else "the run failed"


def _summary(state: RunState) -> Condition:
    assert state.ended is not None
    summary = state.ended.summary
    epochs = state.epochs_done
    blemishes = describe_blemishes(state.blemishes)
    text = join_words(
        [
            blemishes,
            plural(summary.steps, "step") if summary.steps or not state.is_script else "",
            f"{format_count(epochs)} {'epoch' if epochs == 1 else 'epochs'}" if epochs is not None else "",
            f"loss {format_metric(summary.loss)}" if summary.loss is not None else "",
            describe_result(summary) if (summary.test_loss, summary.test_accuracy) != (None, None) else "",
            format_duration(summary.seconds),
            *_script_words(state),
            f"{plural(troubles, 'alert')} in the log" if (troubles := _troubles(state)) else "",
        ]
    )
    if state.ended.status == "completed":
        severity: Severity = "warning" if troubles or blemishes else "good"
        return Condition(f"completed: {text}", severity, SIGNS["completed"].symbol)
    reason = sanitize(state.ended.reason, 120)
    text = join_words([f"stopped: {reason}" if reason else "stopped", _how_to_go_on(state), text])
    return Condition(text, "info", SIGNS["stopped"].symbol)


MOST_FACTS = 6
"""Most entries of a script's own summary, and of its configuration, in the summary."""


def _script_words(state: RunState) -> list[str]:
    """Returns what a script sums up and what it was given, as it says itself; nothing of another run.

    Of a library's configuration, which is long, `tuiapp show` says what is no default.
    """
    if not state.is_script:
        return []
    chosen = {} if state.facts.defaults else state.facts.config
    items = [item for facts in (state.facts.summary, chosen) for item in islice(facts.items(), MOST_FACTS)]
    return [f"{sanitize(key, 30)} {_fact_words(value)}" for key, value in items]


def _fact_words(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else sanitize(str(value), 30)


def _troubles(state: RunState) -> int:
    return sum(alert.severity != "info" for alert in state.alerts)


def _latest_alert(state: RunState) -> Condition | None:
    ranked = [alert for alert in state.alerts if alert.severity == "error"] or [
        alert for alert in state.alerts if alert.severity == "warning"
    ]
    if not ranked:
        return None
    latest, further = state.hang or ranked[-1], _troubles(state) - 1
    where = " · 6: their stacks" if latest.kind == "hang" and state.stacks else ""
    text = sanitize(latest.text, 300) + where + (f" · {further} more in the log" if further else "")
    return Condition(text, latest.severity)
