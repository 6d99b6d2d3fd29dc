"""Many callers, one engine: whoever needs an event and has none runs the next step for all.

There is no thread of our own. A caller that finds its mailbox empty takes its turn at the engine
and runs it until there are events, which go to the mailboxes of the calls they belong to. Callers
that find the engine taken queue up, and the turn is handed from one to the next. An exception in a
step, a KeyboardInterrupt included, ends the call of the one who ran it; the others go on.

A turn is one step where anybody streams. Where all want whole answers (the ``gather`` of
``Engine.submit``) it is many, and Python sees none of them. Whoever wants the engine meanwhile
pauses it, which ends the turn with the present step.

A KeyboardInterrupt can arrive between any two bytecodes of the main thread, and finalizers can run
anywhere. So ``_lock`` is held for a few bytecodes only and never while the engine computes, every
turn ends in a ``finally``, and neither an event nor the id of a request exists only on the
interpreter's stack: one C call takes it to where it is kept. An interrupt on the way out of a turn
leaves it taken: its own thread sees that, by its stack, and gives it back.

Knows nothing of text, options or prompts.
"""

from __future__ import annotations

import operator
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Mapping, Sequence
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar

from onward.errors import ClosedError, Error
from onward.machine import process

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from numpy import int32
    from numpy.typing import NDArray

    from onward._core import Engine, Event

T = TypeVar("T")
POLL_S = 0.001
LEFT_OVER_S = 0.1


class Call:
    """One caller's requests, and the mailbox where their events arrive."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self.thread = 0
        """The thread that has or wants the turn for this call."""
        self.requests: list[int] = []
        """Ids in the order they were handed in."""
        self.mailbox: deque[Event] = deque()
        self.wake: SimpleQueue[None] = SimpleQueue()
        self.closed = False

    def next_event(self) -> Event:
        """The next event of any of this call's requests; runs the engine if none is there yet.

        Raises Error when another thread closes the call meanwhile.
        """
        while True:
            self._driver.check_open(self)
            if self.closed:
                raise Error("call: was closed by another thread, expected an open one")
            if self.mailbox:
                return self.mailbox.popleft()
            self._driver.advance(self)

    def cancel(self, request: int, sequence: int | None = None) -> None:
        """Give up one request, or one of its sequences; it leaves the engine before the next
        step."""
        self._driver.cancel(self, (request,), sequence)

    def close(self) -> None:
        """Give up what is still running. May be called from anywhere, any number of times."""
        self.closed = True
        self._driver.cancel(self, self.requests)

    def __del__(self) -> None:
        try:
            if self._driver.expects(self):
                self.close()
        except Exception:  # the interpreter is already taking itself apart
            return


class Driver:
    """Hands one engine around among calls from any number of threads."""

    def __init__(self, engine: Engine) -> None:
        self._engine: Engine | None = engine
        self._closed = False
        self._forking = False
        self._held_for_fork = False
        self._inherited: set[int] = set()
        """Requests of a parent process that had not ended when this one was forked."""
        # Guards what follows.
        self._lock = threading.Lock()
        self._turn: Call | None = None
        """Whose turn it is. Only they touch the engine."""
        self._waiting: dict[Call, bool] = {}
        """Who wants the turn, in order, and whether they go ahead of those who would step."""
        self._to_cancel: deque[tuple[int, int | None]] = deque()
        self._mailboxes: dict[int, weakref.ref[deque[Event]]] = {}
        """Where events go, by request. Weak, so that a call that is dropped is noticed."""
        process.watch(self)

    def submit(self, requests: Sequence[tuple[NDArray[int32], Mapping[str, Any]]]) -> Call:
        """Hand in requests (prompt, options of ``Engine.submit``); all of them, or none."""
        call = Call(self)

        def hand_in(engine: Engine) -> None:
            try:
                for prompt, options in requests:
                    submit = operator.methodcaller("submit", prompt, **options)
                    call.requests.extend(map(submit, (engine,)))  # one C call, lazily
            finally:
                self._mailboxes.update(dict.fromkeys(call.requests, weakref.ref(call.mailbox)))

        try:
            self._take_turn(call, hand_in)
        except BaseException:
            call.close()
            raise
        return call

    def run(self, work: Callable[[Engine], T]) -> T:
        """Call ``work`` with the engine, between two steps."""
        call = Call(self)
        try:
            return self._take_turn(call, work)
        finally:
            call.close()

    def advance(self, call: Call) -> None:
        """Run the engine until events come, or wait until somebody else's turn brought mail."""
        engine: Engine | None = None
        try:
            engine = self._wait_for_turn(call, ahead=False)
            if engine is None:
                return
            idle = not engine.run(self._mailboxes)
        finally:
            engine = None  # an exception that a caller keeps would keep it too, beyond close()
            self._end_turn(call)
        if idle and self.expects(call) and not call.mailbox:
            raise Error("engine: has nothing to run, expected an event for a request that is open")

    def cancel(self, call: Call, requests: Sequence[int], sequence: int | None = None) -> None:
        """Takes effect now if nobody has the turn, else after the present step. Never waits."""
        for request in requests:
            if sequence is not None:
                self._to_cancel.append((request, sequence))
            elif request in self._mailboxes:
                self._to_cancel.append((request, None))  # first: an interrupt may cut off the rest
                self._mailboxes.pop(request, None)
        # Hardly waiting: a finalizer may run inside this thread's own critical section.
        left_over = self._is_left_over(call)
        if self._lock.acquire(timeout=LEFT_OVER_S if left_over else 0):
            try:
                if left_over and self._turn is call:
                    self._pass_turn()
                elif self._turn is None:
                    self._cancel_now()
            finally:
                self._lock.release()
        if self._to_cancel:
            self._pause()

    def check_open(self, call: Call | None = None) -> None:
        """Raise if nothing can be asked any more."""
        if self._closed:
            raise ClosedError("LLM: was closed, expected an open one")
        if call is not None and self._inherited and not self._inherited.isdisjoint(call.requests):
            raise Error("stream: belongs to the parent process, expected one of this process")

    def expects(self, call: Call) -> bool:
        """Whether events of the call are still to come."""
        return any(request in self._mailboxes for request in call.requests)

    def close(self) -> None:
        """Give up all requests and let go of the engine, now or after the present step."""
        with self._lock:
            self._closed = True
            if self._turn is None:
                self._pass_turn()
        self._pause()

    # Taking turns

    def _take_turn(self, call: Call, work: Callable[[Engine], T]) -> T:
        try:
            engine = self._wait_for_turn(call, ahead=True)
            assert engine is not None  # a call without requests has no mail
            return work(engine)
        finally:
            self._end_turn(call)

    def _wait_for_turn(self, call: Call, *, ahead: bool) -> Engine | None:
        """Take the turn and return the engine; None if mail for ``call`` came first.

        Who wants to hand something in goes ``ahead`` of those who want to step: a newcomer joins
        the batch after one step, however many are generating.
        """
        call.thread = threading.get_ident()
        while True:
            with self._lock:
                self.check_open(call)
                if call.mailbox:
                    return None
                if self._turn is None and self._may_take_turn(call):
                    self._turn = call
                if self._turn is call:
                    self._cancel_now()
                    return self._engine
                if self._turn is not None and self._turn.thread == call.thread:
                    if self._is_left_over(self._turn):
                        self._turn = None
                        continue
                    raise Error(
                        "engine: called by a signal handler or finalizer that interrupted this "
                        "thread's own call, expected that call to end first"
                    )
                self._waiting[call] = ahead
            if ahead:
                self._pause()
            call.wake.get()

    def _pause(self) -> None:
        """End the present turn with its present step; where there is none, the next one."""
        engine = self._engine
        if engine is not None:
            engine.pause()

    def _is_left_over(self, call: Call) -> bool:
        """Whether this thread once took the turn for ``call`` and is no longer inside it."""
        if self._turn is not call or call.thread != threading.get_ident():
            return False
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            if frame.f_code in _TURNS and frame.f_locals.get("call") is call:
                return False
            frame = frame.f_back
        return True

    def _may_take_turn(self, call: Call) -> bool:
        return not self._forking and process.may_run(call.thread)

    def _end_turn(self, call: Call) -> None:
        """Leave the queue, or give the turn to the next. Repeats what an interrupt cut short."""
        if call not in self._waiting and self._turn is not call:
            return
        try:
            self._leave(call)
        finally:
            if self._turn is call:
                self._leave(call)

    def _leave(self, call: Call) -> None:
        with self._lock:
            self._waiting.pop(call, None)
            if self._turn is call:
                self._pass_turn()

    def _pass_turn(self) -> None:
        """Wake those who have mail, and the one whose turn it is now."""
        self._cancel_now()
        if self._closed:
            self._engine = None
        for waiting in list(self._waiting):
            if waiting.mailbox or self._closed:
                waiting.wake.put(None)
                self._waiting.pop(waiting)
        ready = [waiting for waiting in self._waiting if self._may_take_turn(waiting)]
        following = next((waiting for waiting in ready if self._waiting[waiting]), None)
        if following is None and ready:
            following = ready[0]
        if following is not None:
            following.wake.put(None)  # an interrupt from here on wakes it twice, never not at all
        self._turn = following
        if following is not None:
            self._waiting.pop(following)

    def _cancel_now(self) -> None:
        while self._to_cancel and self._engine is not None:
            self._engine.cancel(*self._to_cancel.popleft())

    # Forks and exit (called by onward.machine.process)

    def before_fork(self, deadline: float) -> None:
        """Let the present step end, so that the child gets an engine between two steps."""
        self._forking = True
        self._pause()
        while time.monotonic() < deadline:
            if self._lock.acquire(timeout=POLL_S):
                if self._turn is None:
                    self._held_for_fork = True
                    return
                self._lock.release()
            time.sleep(POLL_S)

    def after_fork_in_parent(self) -> None:
        self._forking = False
        if not self._held_for_fork:
            self._lock.acquire()
        self._held_for_fork = False
        if self._turn is None:
            self._pass_turn()
        self._lock.release()

    def after_fork_in_child(self) -> None:
        """Start over with the same engine and none of the parent's requests. Where the fork fell
        into a step after all, the engine refuses every later use with an error that says so."""
        self._forking = self._held_for_fork = False
        self._lock = threading.Lock()
        self._turn = None
        self._inherited.update(self._mailboxes)
        for collection in (self._mailboxes, self._waiting, self._to_cancel):
            collection.clear()
        if self._engine is not None:
            self._engine.reset_after_fork()

    def wait_until_idle(self, deadline: float) -> None:
        """Let the present step end; called when no further one may begin elsewhere."""
        self._pause()
        while self._turn is not None and time.monotonic() < deadline:
            time.sleep(POLL_S)


_TURNS = (Driver.advance.__code__, Driver._take_turn.__code__)
