# mypy: ignore-errors
"""Mistakes with the drivers' own classes: each marked line is an error in both type checkers.

asyncpg is not here: mypy knows none of its types. `wrong.py` has its shape.
"""

import sqlite3

import psycopg
from psycopg_pool import AsyncConnectionPool, ConnectionPool
from sqlalchemy import Connection, Engine, create_engine
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession, async_sessionmaker
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from penstock import App

app = App()


@app.task
def send(order_id: int) -> str:
    return f"sent {order_id}"


def on_sync_connections(
    plain: sqlite3.Connection,
    by_psycopg: psycopg.Connection,
    connection: Connection,
    session: Session,
    scoped: scoped_session[Session],
) -> None:
    send.using(connection=plain).aenqueue(42)  # error
    send.using(connection=by_psycopg).aenqueue(42)  # error
    send.using(connection=connection).aenqueue(42)  # error
    send.using(connection=session).aenqueue(42)  # error
    send.using(connection=scoped).aenqueue(42)  # error
    send.using(connection=session).enqueue("42")  # error


def on_async_connections(
    by_psycopg: psycopg.AsyncConnection, connection: AsyncConnection, session: AsyncSession
) -> None:
    send.using(connection=by_psycopg).enqueue(42)  # error
    send.using(connection=connection).enqueue(42)  # error
    send.using(connection=session).enqueue(42)  # error


def on_what_makes_connections(
    engine: Engine,
    async_engine: AsyncEngine,
    maker: sessionmaker[Session],
    async_maker: async_sessionmaker[AsyncSession],
    pool: ConnectionPool,
    async_pool: AsyncConnectionPool,
) -> None:
    send.using(connection=engine).enqueue(42)  # error
    send.using(connection=async_engine).enqueue(42)  # error
    send.using(connection=maker).enqueue(42)  # error
    send.using(connection=async_maker).enqueue(42)  # error
    send.using(connection=pool).enqueue(42)  # error
    send.using(connection=async_pool).enqueue(42)  # error
    app.using(connection=engine)  # error
    app.using(connection=async_engine)  # error
    app.using(connection=create_engine("sqlite://"))  # error
