"""Ctrl-C, SIGTERM and SIGHUP."""

import os
import signal
import subprocess
import sys
import threading

import pytest

from sptnet.runtime import interrupt
from sptnet.runtime.interrupt import STOP_SIGNALS, Interrupted, noted_interrupts, signal_of


@pytest.fixture(autouse=True)
def default_handlers():
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def drop_interrupt(monkeypatch):
    """Send a signal where Python drops what its handler raises: in a destructor."""

    class Leaving:
        def __init__(self, number=signal.SIGINT):
            self.number = number

        def __del__(self):
            os.kill(os.getpid(), self.number)
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


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_every_stop_signal_is_an_interrupt_with_its_number(number):
    with pytest.raises(KeyboardInterrupt) as caught, noted_interrupts(STOP_SIGNALS):
        os.kill(os.getpid(), number)
        sum(range(1000))
    assert signal_of(caught.value) == number
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    assert signal_of(KeyboardInterrupt()) == signal.SIGINT


def test_training_checks_the_signals_of_the_command_line(drop_interrupt):
    with pytest.raises(Interrupted) as caught, noted_interrupts(STOP_SIGNALS), noted_interrupts() as check:
        drop_interrupt(signal.SIGTERM)
        check()
    assert caught.value.number == signal.SIGTERM


def test_after_an_inner_context_the_outer_one_still_handles(drop_interrupt):
    with pytest.raises(Interrupted), noted_interrupts(STOP_SIGNALS) as check:
        with noted_interrupts():
            pass
        drop_interrupt(signal.SIGHUP)
        check()


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_a_signal_that_the_program_ignores_or_handles_stays_so(number):
    seen = []
    for handler in (signal.SIG_IGN, lambda *arguments: seen.append(arguments)):
        signal.signal(number, handler)
        with noted_interrupts(STOP_SIGNALS) as check:
            assert signal.getsignal(number) is handler
            os.kill(os.getpid(), number)
            check()
        assert signal.getsignal(number) is handler
    assert len(seen) == 1


def test_another_thread_sets_no_handler():
    found = []

    def work():
        with noted_interrupts(STOP_SIGNALS) as check:
            check()
            found.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [signal.SIG_DFL]


@pytest.mark.parametrize(
    "message",
    ["DataLoader worker (pid 7) is killed by signal: Terminated.", "another process of this job is lost (closed)"],
)
def test_a_process_that_dies_before_the_signal_arrives(monkeypatch, message):
    def arrives(seconds):
        os.kill(os.getpid(), signal.SIGTERM)
        sum(range(1000))

    monkeypatch.setattr(interrupt.time, "sleep", arrives)
    with pytest.raises(Interrupted) as caught, noted_interrupts(STOP_SIGNALS):
        raise RuntimeError(message)
    assert caught.value.number == signal.SIGTERM


@pytest.fixture
def raising_for_children():
    """Torch's handler raises an error for a worker that has ended, wherever the program is."""

    def handler(number, frame):
        raise RuntimeError("DataLoader worker (pid 7) is killed by signal: Terminated.")

    before = signal.signal(signal.SIGCHLD, handler)
    yield handler
    signal.signal(signal.SIGCHLD, before)


def a_child_ends():
    os.kill(os.getpid(), signal.SIGCHLD)
    sum(range(1000))


def test_workers_that_end_after_the_signal_raise_no_error_in_its_clean_up(raising_for_children, monkeypatch):
    cleaned_up = []
    with pytest.raises(Interrupted) as caught, noted_interrupts(STOP_SIGNALS, second_ends=True), noted_interrupts():
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            sum(range(1000))
        finally:
            a_child_ends()
            cleaned_up.append(True)
    assert cleaned_up and caught.value.number == signal.SIGTERM
    assert signal.getsignal(signal.SIGCHLD) is raising_for_children, "after the stop all is as before"
    monkeypatch.setattr(interrupt, "SAME_STOP", 0.0)
    with pytest.raises(RuntimeError, match="DataLoader worker"), noted_interrupts():
        a_child_ends()


def test_a_signal_is_awaited_once_per_error(monkeypatch):
    waits = []
    monkeypatch.setattr(interrupt.time, "sleep", waits.append)
    with pytest.raises(RuntimeError), noted_interrupts(STOP_SIGNALS), noted_interrupts(), noted_interrupts():
        raise RuntimeError("DataLoader worker (pid 7) is killed by signal: Killed.")
    assert waits == [interrupt.SAME_STOP]


def in_a_child(later, environment=()):
    """End of a process that gets SIGTERM twice, `later` seconds apart as its clock says."""
    child = os.fork()
    if child == 0:
        clock = iter([10.0, 10.0 + later])
        interrupt.time.monotonic = lambda: next(clock)
        os.environ.update(environment)
        with noted_interrupts(STOP_SIGNALS, second_ends=True):
            try:
                os.kill(os.getpid(), signal.SIGTERM)
                sum(range(1000))
            except KeyboardInterrupt:
                os.kill(os.getpid(), signal.SIGTERM)
                sum(range(1000))
        os._exit(7)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_second_signal_ends_at_once():
    assert in_a_child(later=2) == -signal.SIGTERM


def test_a_signal_sent_twice_at_once_is_one_stop():
    """Batch systems and `timeout` signal a process directly and through its group."""
    assert in_a_child(later=0.01) == 7


def test_torchrun_passes_signals_on_so_a_second_one_says_nothing():
    assert in_a_child(later=2, environment={"TORCHELASTIC_RUN_ID": "job"}.items()) == 7


def test_a_program_that_uses_the_library_is_not_ended_by_a_second_ctrl_c():
    times = 0
    with noted_interrupts():
        for _ in range(2):
            try:
                os.kill(os.getpid(), signal.SIGINT)
                sum(range(1000))
            except KeyboardInterrupt:
                times += 1
    assert times == 2


WAITING = """
import signal, sys, time
from sptnet import cli
from sptnet.cli.verbs import recipes
import sptnet.config.recipe_table

if sys.argv[1] == "plain":
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
def wait(*_):
    print("waiting", flush=True)
    time.sleep(120)
sptnet.config.recipe_table.recipe_table = wait
sys.argv = ["sptnet", "recipes", "list"]
cli.main()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_command_without_anything_to_resume(number):
    words = [sys.executable, "-c", WAITING, "plain"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "waiting\n"
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (128 + number, f"stopped by {signal.Signals(number).name}\n")


def test_nohup_still_ignores_a_closed_terminal():
    words = [sys.executable, "-c", WAITING, "nohup"]
    process = subprocess.Popen(
        words,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: (
            signal.signal(signal.SIGHUP, signal.SIG_IGN),
            signal.signal(signal.SIGTERM, signal.SIG_DFL),
        ),
    )
    assert process.stdout.readline() == "waiting\n"
    process.send_signal(signal.SIGHUP)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (143, "stopped by SIGTERM\n")
