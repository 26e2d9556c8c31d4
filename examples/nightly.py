"""The books of a day: one task for each shop, and a fallback for a bank that does not answer.

    python examples/nightly.py

The shops are only known when the run has begun, so `takings` runs once for each of them, side by
side, and each is retried on its own. The exchange rate comes from a bank, or, when that fails, from
yesterday. The report needs all takings, and one of the two rates.
"""

import os
import tempfile
from dataclasses import dataclass

from penstock import App, TaskHandle, failed, succeeded

app = App()  # PENSTOCK_DATABASE_URL says where the database is

YESTERDAYS_RATE = 1.08
TILLS = {"2026-11-15": {"Ghent": [1250, 900], "Porto": [4000], "Turku": [310, 320, 330]}}


class BadLine(Exception):
    pass


class BankSilent(Exception):
    pass


@dataclass
class Night:
    day: str


nightly = app.workflow("nightly", inputs=Night)


@nightly.task
def shops(day: str) -> list[str]:
    return sorted(TILLS[day])


@nightly.task(for_each=shops.output, retry=["100ms", "1s"])
def takings(handle: TaskHandle, shop: str, day: str) -> int:
    if shop == "Porto" and handle.attempt == 1:
        raise BadLine(shop)
    return sum(TILLS[day][shop])


@nightly.task(retry=["50ms"])
def fetch_rate() -> float:
    raise BankSilent


@nightly.task(after=[fetch_rate], when=failed(fetch_rate))
def keep_yesterdays_rate() -> float:
    return YESTERDAYS_RATE


@nightly.task(when=succeeded(takings) & (succeeded(fetch_rate) | succeeded(keep_yesterdays_rate)))
def report(
    day: str,
    cents: list[int] = takings.output,
    fresh: float | None = fetch_rate.output,
    kept: float | None = keep_yesterdays_rate.output,
) -> str:
    rate = kept if fresh is None else fresh
    assert rate is not None  # the rule says so
    euros = sum(cents) / 100
    return f"{euros:.2f} EUR are {euros * rate:.2f} USD on {day}"


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        os.environ.setdefault("PENSTOCK_DATABASE_URL", f"sqlite:///{directory}/nightly.db")
        app.migrate()
        run = nightly.start(day="2026-11-15")
        with app.worker(slots=4):
            result = run.result(timeout=60)
        for name, task in run.refresh().tasks.items():
            print(f"{name:20} {task.state:10} {result.get(name, '')}".rstrip())
        # Each element is an execution of its own, under the name of its task, which only waits.
        for one in reversed(app.find(task=takings.name)):
            if one.attempt:
                print(f"  {one.args['shop']}: {one.result()} in attempt {one.attempt}")
        print(f"the run has {run.state}")
        app.close()


if __name__ == "__main__":
    main()
