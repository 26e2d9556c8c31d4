"""What we need of a caller's connection, whichever library it comes from."""

from typing import Any, NamedTuple, Protocol, TypeAlias

from penstock.store.scripts import Row, Step

# An object of a library that we do not import: all that we know is how it behaves.
Foreign: TypeAlias = Any


class Adapter(Protocol):
    """A caller's connection that has been recognised, for the length of one call."""

    kind: str

    @property
    def dialect(self) -> str: ...

    @property
    def driver_connection(self) -> object:
        """The driver's own connection, below every wrapper."""
        ...

    def check(self) -> Step | None:
        """Look at the true state of its transaction, without touching the database.

        Return the statement that has to begin one where the driver would not, and None
        where a transaction is open or the driver opens it.

        Raises:
            ConnectionRefused: closed, autocommit, aborted, or another thread's.
        """
        ...


class SyncAdapter(Adapter, Protocol):
    def open(self) -> None:
        """Get hold of the connection: a session may have yet to fetch it from its pool."""
        ...

    def execute(self, step: Step) -> list[Row]: ...


class AsyncAdapter(Adapter, Protocol):
    async def open(self) -> None: ...

    async def execute(self, step: Step) -> list[Row]: ...


class Shape(NamedTuple):
    """How a class is recognised without importing the library that it comes from."""

    library: str
    name: str


def shapes_of(connection: object) -> list[Shape]:
    """Return the shapes of its class and of what that inherits from, nearest first."""
    # __class__ and not type(): wrappers that trace calls present the class that they wrap.
    return [Shape(cls.__module__.partition(".")[0], cls.__name__) for cls in _classes(connection)]


def kind_of(connection: object) -> str:
    if connection is None:
        return "None"
    library, name = shapes_of(connection)[0]
    return name if library == "builtins" else f"{library}.{name}"


def _classes(connection: Foreign) -> tuple[type, ...]:
    return connection.__class__.__mro__  # type: ignore[no-any-return]
