"""Memory budget shared by threads."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from sptnet.runtime.budget import Budget


def most_at_once(budget: Budget, requests: list[int]) -> int:
    """Reserve all requests in as many threads, each twenty times; return the most bytes in use at once."""
    lock, using, most = threading.Lock(), 0, 0

    def work(n_bytes: int) -> None:
        nonlocal using, most
        for _ in range(20):
            with budget.reserved(n_bytes):
                with lock:
                    using += n_bytes
                    most = max(most, using)
                os.sched_yield()
                with lock:
                    using -= n_bytes

    with ThreadPoolExecutor(len(requests)) as pool:
        list(pool.map(work, requests))
    assert budget.used == 0
    return most


def test_threads_stay_within_the_budget() -> None:
    assert most_at_once(Budget(10), [4, 4, 4, 3, 2, 1]) <= 10


def test_a_request_beyond_the_budget_is_served_alone() -> None:
    assert most_at_once(Budget(10), [30, 4, 4, 30, 1]) == 30


def test_two_fit_at_once_and_a_third_waits() -> None:
    budget, entered = Budget(10), threading.Event()

    def third() -> None:
        with budget.reserved(1):
            entered.set()

    thread = threading.Thread(target=third)
    with budget.reserved(5), ThreadPoolExecutor(1) as other:
        leave = threading.Event()

        def second() -> None:
            with budget.reserved(5):
                leave.wait()

        running = other.submit(second)
        while budget.used < 10:
            os.sched_yield()
        thread.start()
        assert not entered.wait(0.05)
        leave.set()
        running.result()
        assert entered.wait(60)
    thread.join()


def test_an_error_gives_the_bytes_back() -> None:
    budget = Budget(10)
    with pytest.raises(ZeroDivisionError), budget.reserved(7):
        1 / 0  # noqa: B018
    assert budget.used == 0


def test_a_forked_process_has_the_whole_budget() -> None:
    """Threads that hold a part of it do not exist there, and would never give it back."""
    budget = Budget(10)
    with budget.reserved(10):
        child = os.fork()
        if child == 0:
            os._exit(budget.used)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
