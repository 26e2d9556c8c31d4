"""The reports: a table of requests, and the task that fulfils them.

Generating a report reads far too many rows for an HTTP request to wait for it. So the request only
writes down what is wanted, together with a task, in one transaction.
"""

from datetime import date

from sqlalchemy import ForeignKey, create_engine, func, select
from sqlalchemy.engine import Engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from penstock import App, TaskHandle

app = App()  # PENSTOCK_DATABASE_URL says where the database is


class Base(DeclarativeBase):
    pass


class Sale(Base):
    __tablename__ = "sales"

    id: Mapped[int] = mapped_column(primary_key=True)
    day: Mapped[date] = mapped_column(index=True)
    cents: Mapped[int]


class Report(Base):
    """What somebody asked for. It has a line once it is ready."""

    __tablename__ = "reports"

    id: Mapped[int] = mapped_column(primary_key=True)
    first: Mapped[date]
    last: Mapped[date]
    execution_id: Mapped[str | None]


class Line(Base):
    __tablename__ = "lines"

    # One line for each report, whatever happens: a second one would be refused.
    report_id: Mapped[int] = mapped_column(ForeignKey(Report.id), primary_key=True)
    sales: Mapped[int]
    cents: Mapped[int]


def make_engine(url: str) -> Engine:
    if url.startswith("sqlite"):
        return create_engine(url, connect_args={"timeout": 30})  # the worker writes there, too
    return create_engine(url.replace("postgresql://", "postgresql+psycopg://", 1))


engine = make_engine(app.settings.database.url)


@app.task(queue="reports", retry=["10s", "1m", "10m"], timeout="10m")
def generate(handle: TaskHandle, report_id: int) -> int:
    """Add up the sales of a report's days; return how many there were."""
    with Session(engine) as session:
        report = session.get_one(Report, report_id)
        days = Sale.day.between(report.first, report.last)
        counted = session.execute(
            select(func.count(), func.coalesce(func.sum(Sale.cents), 0)).where(days)
        ).one()
    handle.progress(0.9, "added up")
    with Session(engine) as session, session.begin():
        session.add(Line(report_id=report_id, sales=counted[0], cents=counted[1]))
        session.flush()
        # The line and the end of the task commit together: never one without the other.
        return handle.complete(int(counted[0]), connection=session)


def request_report(first: date, last: date) -> tuple[int, str]:
    """Write down what is wanted, and the task that makes it; return the ids of both."""
    with Session(engine) as session, session.begin():
        report = Report(first=first, last=last, execution_id=None)
        session.add(report)
        session.flush()
        execution = generate.using(connection=session).enqueue(report.id)
        report.execution_id = execution.id
        return report.id, execution.id
