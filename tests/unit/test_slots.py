"""The lifecycle of a slot: what is handed out comes back once, and in the order of asking."""

import random
import threading

import pytest

from penstock.engine.slots import SlotPool, SlotToken


class Freed:
    """Counts how often the pool said that a slot is free."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self) -> None:
        self.times += 1


@pytest.fixture
def freed() -> Freed:
    return Freed()


def pool_of(size: int, freed: Freed | None = None) -> SlotPool:
    return SlotPool(size, when_free=freed or Freed())


def taken(pool: SlotPool) -> SlotToken:
    (token,) = pool.take()
    return token


def all_taken(pool: SlotPool) -> list[SlotToken]:
    tokens = [taken(pool) for _ in range(pool.free)]
    assert pool.take() == []
    return tokens


def test_there_are_as_many_tokens_as_slots() -> None:
    pool = pool_of(3)

    tokens = all_taken(pool)

    assert len(tokens) == 3
    assert all(token.held for token in tokens)
    assert pool.free == 0


def test_slots_are_handed_out_together_and_unused_ones_put_back_in_silence(freed: Freed) -> None:
    pool = pool_of(3, freed)

    tokens = pool.take(5)

    assert (len(tokens), pool.free) == (3, 0)
    pool.put_back(tokens[1:])
    assert (pool.free, freed.times) == (2, 0)


def test_a_released_slot_is_free_and_says_so(freed: Freed) -> None:
    pool = pool_of(1, freed)
    token = taken(pool)

    assert token.release() is True

    assert (token.held, pool.free, freed.times) == (False, 1, 1)


def test_a_double_release_says_so_and_frees_nothing(freed: Freed) -> None:
    pool = pool_of(2, freed)
    token = all_taken(pool)[0]
    token.release()

    assert token.release() is False

    assert (pool.free, freed.times) == (1, 1)


def test_a_free_slot_is_reclaimed_at_once() -> None:
    pool = pool_of(1)
    token = taken(pool)
    token.release()

    assert token.reclaim() is True

    assert token.held
    assert pool.free == 0


def test_reclaiming_a_slot_that_is_held_takes_no_second_one() -> None:
    pool = pool_of(2)
    token = taken(pool)

    assert token.reclaim() is True

    assert pool.free == 1
    token.release()
    assert pool.free == 2


def test_reclaiming_waits_on_its_thread_until_a_slot_is_there() -> None:
    pool = pool_of(1)
    waiting = taken(pool)
    waiting.release()
    busy = taken(pool)
    answers: list[bool] = []
    thread = threading.Thread(target=lambda: answers.append(waiting.reclaim()))
    thread.start()
    while waiting._place is None:
        pass

    assert not waiting.held
    busy.release()
    thread.join(10)

    assert answers == [True]
    assert waiting.held


def test_slots_are_reclaimed_in_the_order_of_asking_and_before_new_tasks(freed: Freed) -> None:
    pool = pool_of(1, freed)
    line: list[int] = []
    waiting = []
    for _ in range(4):
        token = taken(pool)
        token.release()
        waiting.append(token)
    holder = taken(pool)
    asked_in = [2, 0, 3, 1]
    for number in asked_in:
        waiting[number].ask(lambda number=number: line.append(number))  # type: ignore[misc]
    freed.times = 0

    for next_holder in asked_in:
        holder.release()
        assert pool.take() == []
        holder = waiting[next_holder]
        assert holder.held

    assert line == asked_in
    assert freed.times == 0


def test_who_leaves_the_line_is_passed_over(freed: Freed) -> None:
    pool = pool_of(1, freed)
    first, second = (taken_and_released(pool) for _ in range(2))
    holder = taken(pool)
    answered: list[str] = []
    first.ask(lambda: answered.append("first"))
    second.ask(lambda: answered.append("second"))

    first.withdraw()
    holder.release()

    assert answered == ["second"]
    assert (first.held, second.held) == (False, True)


def test_who_leaves_the_line_too_late_gives_back_what_it_got(freed: Freed) -> None:
    pool = pool_of(1, freed)
    waiting = taken_and_released(pool)
    holder = taken(pool)
    waiting.ask(lambda: None)
    holder.release()
    assert waiting.held

    waiting.withdraw()

    assert not waiting.held
    assert pool.free == 1


def test_who_leaves_the_line_and_asks_again_stands_at_its_end_and_gets_one_slot() -> None:
    pool = pool_of(1)
    restless, patient = (taken_and_released(pool) for _ in range(2))
    holder = taken(pool)
    restless.ask(lambda: None)
    patient.ask(lambda: None)
    restless.withdraw()
    restless.ask(lambda: None)

    holder.release()
    assert (restless.held, patient.held) == (False, True)
    patient.release()
    assert restless.held
    restless.release()

    assert pool.free == 1


def test_a_slot_handed_over_is_not_lost_by_a_place_left_before() -> None:
    pool = pool_of(2)
    restless = taken_and_released(pool)
    first, second = all_taken(pool)
    restless.ask(lambda: None)
    restless.withdraw()
    restless.ask(lambda: None)

    first.release()
    second.release()

    assert restless.held
    assert restless.release() is True
    assert pool.free == 2


def test_an_ended_token_gives_back_its_slot_and_gets_none_again(freed: Freed) -> None:
    pool = pool_of(1, freed)
    token = taken(pool)

    token.end()
    token.end()

    assert (token.held, pool.free, freed.times) == (False, 1, 1)
    assert token.reclaim() is False
    assert token.ask(lambda: None) is False
    assert pool.free == 1


def test_who_waits_in_line_hears_that_its_task_has_ended() -> None:
    pool = pool_of(1)
    waiting = taken_and_released(pool)
    holder = taken(pool)
    answered: list[str] = []
    waiting.ask(lambda: answered.append("ended"))

    waiting.end()
    holder.release()

    assert answered == ["ended"]
    assert not waiting.held
    assert pool.free == 1


def test_many_threads_never_hold_more_slots_than_there_are() -> None:
    pool = pool_of(3)
    holding: list[int] = []
    seen: list[int] = []
    counting = threading.Lock()
    tokens = all_taken(pool)
    for token in tokens:
        token.release()

    def live(seed: int) -> None:
        moods = random.Random(seed)
        token = SlotToken(pool)
        token._held = False
        for _ in range(300):
            assert token.reclaim()
            with counting:
                holding.append(seed)
                seen.append(len(holding))
            with counting:
                holding.remove(seed)
            token.release()
            if moods.random() < 0.3:
                token.ask(lambda: None)
                token.withdraw()
        token.end()

    threads = [threading.Thread(target=live, args=[seed]) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)

    assert max(seen) <= 3
    assert len(seen) == 8 * 300
    assert pool.free == 3


def taken_and_released(pool: SlotPool) -> SlotToken:
    token = taken(pool)
    token.release()
    return token
