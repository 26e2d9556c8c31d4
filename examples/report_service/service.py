"""The HTTP side: `POST /reports` answers 202 at once, `GET /reports/1` says how far it is."""

from datetime import date

from reports import Line, Report, app, engine, request_report
from sqlalchemy.orm import Session
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route


async def ask_for_report(request: Request) -> JSONResponse:
    try:
        wanted = await request.json()
        first, last = date.fromisoformat(wanted["from"]), date.fromisoformat(wanted["to"])
    except (ValueError, KeyError, TypeError):
        return JSONResponse({"error": 'send {"from": "2026-10-01", "to": "2026-10-31"}'}, 400)
    return await run_in_threadpool(_accepted, first, last)


def _accepted(first: date, last: date) -> JSONResponse:
    report_id, _ = request_report(first, last)
    place = f"/reports/{report_id}"
    return JSONResponse({"report": place}, status_code=202, headers={"Location": place})


def show_report(request: Request) -> JSONResponse:
    report_id = int(request.path_params["report_id"])
    with Session(engine) as session:
        report = session.get(Report, report_id)
    if report is None or report.execution_id is None:
        return JSONResponse({"error": "there is no such report"}, status_code=404)
    # The state first, then the line: what a completed task has written is there by then.
    execution = app.get(report.execution_id)
    with Session(engine) as session:
        line = session.get(Line, report_id)
    if line is not None:
        return JSONResponse({"state": "completed", "sales": line.sales, "cents": line.cents})
    return JSONResponse({"state": execution.state, "attempt": execution.attempt})


service = Starlette(
    routes=[
        Route("/reports", ask_for_report, methods=["POST"]),
        Route("/reports/{report_id:int}", show_report),
    ]
)
