"""Taking notifications out of what a PostgreSQL server says, and leaving the rest whole.

A message of the server is a letter, a length of four bytes that counts itself, and so many bytes.
Only the answer to the question for encryption is a single letter.
"""

import struct

NOTIFICATION = b"A"
HEAD = 5
_ASKS_FOR_ENCRYPTION = frozenset({80877103, 80877104})  # TLS, GSSAPI
_REQUEST = struct.Struct("!II")
_LENGTH = struct.Struct("!I")


class Notifications:
    """Follows one connection; messages may arrive in any pieces."""

    def __init__(self) -> None:
        self._single = 0  # answers of one letter that are still to come
        self._opaque = False  # encrypted: nothing can be told apart
        self._rest = b""  # the beginning of a message whose end has not arrived
        self.dropped = 0

    def asked(self, data: bytes) -> None:
        """Take note of what the client says: it may ask for encryption first."""
        if len(data) == _REQUEST.size:
            _, code = _REQUEST.unpack(data)
            self._single += code in _ASKS_FOR_ENCRYPTION

    def removed_from(self, data: bytes, *, drop: bool) -> bytes:
        """Return what is to be passed on of what the server says, notifications left out."""
        if self._opaque or not data:
            return data
        if self._single and not self._rest:
            self._single -= 1
            self._opaque = data[:1] != b"N"
            return data[:1] + self.removed_from(data[1:], drop=drop)
        if not drop and not self._rest:
            self._rest = self._incomplete_end(data)
            return data[: len(data) - len(self._rest)]
        data, self._rest, kept = self._rest + data, b"", []
        while len(data) >= HEAD and len(data) > (length := _LENGTH.unpack_from(data, 1)[0]):
            message, data = data[: length + 1], data[length + 1 :]
            if drop and message[:1] == NOTIFICATION:
                self.dropped += 1
            else:
                kept.append(message)
        self._rest = data
        return b"".join(kept)

    @staticmethod
    def _incomplete_end(data: bytes) -> bytes:
        place = 0
        while place + HEAD <= len(data):
            end = place + 1 + int(_LENGTH.unpack_from(data, place + 1)[0])
            if end > len(data):
                break
            place = end
        return data[place:]
