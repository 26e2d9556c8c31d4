"""Tasks that follow the end of another: stored with it, so that any worker can enqueue them."""

import msgspec


class FollowUp(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be enqueued, and which facts about the end it wants as arguments."""

    task: str
    queue: str
    priority: int
    max_crashes: int
    wants: tuple[str, ...]


class FollowUps(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What follows a success, and what follows a failure."""

    on_success: FollowUp | None = None
    on_failure: FollowUp | None = None


_decoder = msgspec.json.Decoder(FollowUps)


def encode_follow_ups(*, on_success: FollowUp | None, on_failure: FollowUp | None) -> str:
    return msgspec.json.encode(FollowUps(on_success=on_success, on_failure=on_failure)).decode()


def decode_follow_ups(text: str) -> FollowUps:
    return _decoder.decode(text)
