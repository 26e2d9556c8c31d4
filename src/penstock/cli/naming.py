"""Names of tasks and queues that nobody knows here: what a person is told about them."""

import logging
from collections import Counter
from collections.abc import Collection
from difflib import get_close_matches

from penstock.app import App
from penstock.errors import PenstockError, StoreUnavailable
from penstock.model.telling import some_of
from penstock.store.contract import Store

log = logging.getLogger("penstock.worker")


def told_of_unknown(store: Store, task: str) -> str | None:
    """Say that there is no such task and which one was meant, or None where there is one."""
    known = set(store.task_names()).union(*(peer.info.tasks for peer in store.workers()))
    if task in known or store.find(task=task, limit=1):
        return None
    near = get_close_matches(task, known, n=3)
    if near:
        return f"No task {task!r} is known here. Did you mean {' or '.join(map(repr, near))}?"
    some = some_of(sorted(known))
    there = f"There are {some}." if known else "Nothing has been enqueued here yet."
    return f"No task {task!r} is known here. {there}"


def told_of_unknown_queue(store: Store, queue: str) -> str | None:
    """Say that there is no such queue and which one was meant, or None where there is one."""
    known = _queues_with_work(store).union(*(peer.info.queues for peer in store.workers()))
    if queue in known or store.find(queue=queue, limit=1):
        return None
    near = get_close_matches(queue, known, n=3)
    if near:
        there = f"Did you mean {' or '.join(map(repr, near))}?"
    elif known:
        there = f"There are {some_of(sorted(known))}."
    else:
        there = "No other queue is served or has anything ready, either."
    return f"No worker serves the queue {queue!r}, and nothing is in it. {there}"


def _queues_with_work(store: Store) -> set[str]:
    return {depth.queue for depth in store.depths()}


def warn_of_unknown_queues(app: App, *, queues: Collection[str]) -> None:
    """Say which queues a worker was told to serve though no task is in them, nor any execution."""
    declared = {task.options.queue for task in app.tasks.values()}
    unknown = [queue for queue in queues if queue not in declared]
    if not unknown:
        return
    try:
        # Not all that was ever in them: there may be millions, and no index by queue.
        with_work = _queues_with_work(app.store)
    except PenstockError:
        return  # the worker says what is wrong with the database
    for queue in unknown:
        if queue in with_work:
            continue
        near = get_close_matches(queue, declared, n=1)
        log.warning(
            "the queue %r is that of no task here, and nothing in it is ready: %s",
            queue,
            f"did you mean {near[0]!r}?" if near else f"theirs are {some_of(sorted(declared))}",
        )


def warn_of_strangers(app: App, *, queues: Collection[str]) -> None:
    """Say which ready tasks an idle worker leaves because neither it nor another knows them.

    `queues` are those that it served; none stands for all of them.
    """
    try:
        ready = app.store.ready_tasks()
        known = {name for task in app.tasks.values() for name in (task.name, *task.options.aliases)}
        known = known.union(*(peer.info.tasks for peer in app.store.workers()))
    except StoreUnavailable as error:
        log.warning("what is left could not be looked at: %s", error)
        return
    left: Counter[str] = Counter()
    for queue, task, count in ready:
        if task not in known and (not queues or queue in queues):
            left[task] += count
    if not left:
        return
    near = {name: get_close_matches(name, known, n=1) for name in left}
    told = [
        f"{name!r} ({count}{f', did you mean {near[name][0]!r}?' if near[name] else ''})"
        for name, count in left.most_common()
    ]
    log.warning(
        "%d ready %s left, of %s that nobody here knows: %s. Run a worker with the App that has "
        "them, name their module with --import, or `penstock cancel` what should not run",
        left.total(),
        "task is" if left.total() == 1 else "tasks are",
        "a name" if len(left) == 1 else f"{len(left)} names",
        some_of(told),
    )
