"""What the page "Keep secrets out" says is not in histories, logs and metrics is not there."""

import signal

from tests.e2e.command_line import CommandLine, wait_until
from tests.support.scraping import free_ports, page, scrape

SAFE = """
from penstock import App

app = App()


@app.task
def unlock(code: str) -> str:
    return code[::-1]


@app.task(retry=[0, 0])
def stumble(code: str) -> None:
    raise RuntimeError("no luck")
"""
CODE = "open-sesame-4711"


def test_arguments_and_results_are_neither_logged_nor_counted_nor_in_the_history(
    penstock: CommandLine,
) -> None:
    (penstock.directory / "safe.py").write_text(SAFE, "utf-8")
    ids = [penstock.enqueue(task, f'{{"code": "{CODE}"}}') for task in ("unlock", "stumble")]
    port = free_ports()
    worker = penstock.start(
        "worker", "safe:app", "--metrics-port", str(port), "--log-level", "debug"
    )
    ended = (("outcome", "failed"), ("task", "stumble"))
    wait_until(lambda: scrape(port).get(("penstock_task_processed_total", ended)) == 1)
    pages = "".join(page(port, path)[1] for path in ("/metrics", "/livez", "/readyz"))
    worker.send_signal(signal.SIGTERM)
    out, err = worker.communicate(timeout=30)
    histories = "".join(penstock("history", one, "--json").out for one in ids)

    assert "stumble" in pages + err
    assert "task.completed" in histories
    assert "no luck" in histories
    for told in (pages, out, err, histories):
        assert CODE not in told
        assert CODE[::-1] not in told
