"""Clients of a cluster that note when they asked what of which node, and when they were answered."""

import re
import threading
import time
from collections.abc import Callable, Sequence
from random import Random

import httpx
from tests.faults.history import (
    Append,
    Appended,
    Call,
    Content,
    Create,
    Created,
    Delete,
    Deleted,
    Head,
    Operation,
    OutcomeUnknown,
    Read,
    Refused,
    Result,
    Tail,
    Unavailable,
)
from tests.faults.simulated_stream import Client, Profile
from tests.faults.writers import TEXT

TIMEOUT_SECONDS = 15.0
REST_SECONDS = (0, 0.01, 0.03)
MESSAGE = re.compile(rb"<[^>]*>")
REFUSALS = frozenset(
    (
        "stream_not_found",
        "stream_closed",
        "stream_exists",
        "producer_epoch_stale",
        "producer_headers_invalid",
        "producer_seq_conflict",
    )
)
NOT_WRITTEN = frozenset(("unavailable", "write_backpressure"))
LASTING = Profile(ends=0, bytes_max=4)
MORTAL = Profile(ends=0.06, bytes_max=4)


class Witness:
    """Clients of one stream, each request to any node, and the history that they see."""

    def __init__(
        self, path: str, urls: Sequence[str], random: Random, profile: Profile, clients: int
    ) -> None:
        """Half of the clients append as producers. The stream lasts, unless the profile has ends."""
        self.path = path
        self.history: list[Operation] = []
        self._urls = urls
        self._random = random
        self._profile = profile
        self._clients = [
            Client(f"c{number}", Random(random.random()), profile, produces=number % 2 == 0)
            for number in range(clients)
        ]

    def create(self) -> None:
        """Create the stream."""
        with httpx.Client(timeout=TIMEOUT_SECONDS) as api:
            assert self._carry_out(api, "first", Create(), self._urls[0]) == Created(new=True)

    def work(self) -> list[Callable[[threading.Event], None]]:
        """What each client does until the event is set."""
        return [lambda over, client=client: self._work(client, over) for client in self._clients]  # type: ignore[misc]

    def read_on_all_nodes(self) -> list[Result]:
        """The whole content by each node, which is part of the history too."""
        with httpx.Client(timeout=TIMEOUT_SECONDS) as api:
            return [self._carry_out(api, "last", Read(), url) for url in self._urls]

    @property
    def acknowledged(self) -> int:
        """How many appends were acknowledged."""
        return sum(isinstance(operation.result, Appended) for operation in self.history)

    def _work(self, client: Client, over: threading.Event) -> None:
        with httpx.Client(timeout=TIMEOUT_SECONDS) as api:
            while not over.wait(client.random.choice(REST_SECONDS)):
                call = client.next()
                url = client.random.choice(self._urls)
                client.take(call, self._carry_out(api, client.name, call, url))

    def _carry_out(self, api: httpx.Client, name: str, call: Call, url: str) -> Result:
        invoked = time.monotonic()
        try:
            result = self._ask(api, call, url + self.path)
        except (httpx.ConnectError, httpx.ConnectTimeout):
            result = Unavailable()  # nothing was sent
        except httpx.TransportError:
            result = OutcomeUnknown()
        self.history.append(Operation(name, invoked, time.monotonic(), call, result))
        return result

    def _ask(self, api: httpx.Client, call: Call, url: str) -> Result:
        match call:
            case Create():
                answer = api.put(url, headers=TEXT)
                return Created(new=answer.status_code == 201) if answer.is_success else _failure(answer)
            case Delete():
                answer = api.delete(url)
                return Deleted() if answer.is_success else _failure(answer)
            case Append():
                return _append(api, call, url)
            case Head():
                answer = api.head(url)
                if answer.status_code == 404:
                    return Refused("stream_not_found")
                assert answer.status_code in (200, 503), answer
                return Tail(_tail(answer), _is_closed(answer)) if answer.is_success else OutcomeUnknown()
            case Read():
                return self._read(api, call, url)

    def _read(self, api: httpx.Client, call: Read, url: str) -> Result:
        """Read up to the tail. Pages that do not reach it may be of an earlier life of the stream."""
        text, start = b"", call.start
        while True:
            answer = api.get(url, params={"offset": f"{start:020}"})
            if not answer.is_success:
                failure = _failure(answer)
                return failure if isinstance(failure, Refused) else OutcomeUnknown()
            text += answer.content
            start = _tail(answer)
            if "stream-up-to-date" in answer.headers:
                messages = tuple(MESSAGE.findall(text))
                assert b"".join(messages) == text, text
                return Content(messages, _is_closed(answer))
            if self._profile.ends:
                return OutcomeUnknown()


def _append(api: httpx.Client, call: Append, url: str) -> Result:
    headers = dict(TEXT)
    if call.close:
        headers["stream-closed"] = "true"
    if call.producer is not None:
        identity, epoch, seq = call.producer
        headers |= {"producer-id": identity, "producer-epoch": str(epoch), "producer-seq": str(seq)}
    answer = api.post(url, content=call.message, headers=headers)
    if not answer.is_success:
        return _failure(answer)
    is_duplicate = call.producer is not None and answer.status_code == 204
    return Appended(_tail(answer), is_duplicate)


def _failure(answer: httpx.Response) -> Result:
    code = answer.json()["error"]["code"]
    if answer.status_code == 503:
        if code in NOT_WRITTEN:
            return Unavailable()
        assert code in ("outcome_unknown", "store_unavailable"), answer.text
        return OutcomeUnknown()
    assert code in REFUSALS, answer.text
    return Refused(code)


def _tail(answer: httpx.Response) -> int:
    return int(answer.headers["stream-next-offset"])


def _is_closed(answer: httpx.Response) -> bool:
    return "stream-closed" in answer.headers
