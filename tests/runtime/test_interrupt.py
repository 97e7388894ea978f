"""Ctrl-C during training."""

import os
import signal
import sys

import pytest

from sptnet.runtime.interrupt import noted_interrupts


@pytest.fixture(autouse=True)
def default_handler():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def drop_interrupt(monkeypatch):
    """Send Ctrl-C where Python drops what its handler raises: in a destructor."""

    class Leaving:
        def __del__(self):
            os.kill(os.getpid(), signal.SIGINT)
            sum(range(1000))  # the handler runs here

    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: None)
    return Leaving


def test_a_dropped_interrupt_is_raised_at_the_next_check(drop_interrupt):
    with pytest.raises(KeyboardInterrupt), noted_interrupts() as check:
        drop_interrupt()
        check()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_error_after_a_dropped_interrupt_is_the_interrupt(drop_interrupt):
    """Worker processes get Ctrl-C too, and the loader raises when it finds them dead."""
    with pytest.raises(KeyboardInterrupt), noted_interrupts():
        drop_interrupt()
        raise RuntimeError("a worker has died")


def test_an_error_without_an_interrupt_stays_what_it_is():
    with pytest.raises(RuntimeError, match="a worker has died"), noted_interrupts():
        raise RuntimeError("a worker has died")
