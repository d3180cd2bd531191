"""A store in S3, or in any service with the same API.

Large objects are sent and fetched in parts, so that each part fits in the timeout of a request even on a slow
connection.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import obstore
from obstore import store as stores
from obstore.exceptions import AlreadyExistsError, BaseError

from .store import (
    PART_BYTES,
    UNFINISHED,
    ObjectDamaged,
    ObjectInfo,
    ObjectMissing,
    StoreFailed,
    StoreUnavailable,
    check_key,
    check_prefix,
    check_range,
)

if TYPE_CHECKING:
    from obstore.store import S3Config, S3Credential

T = TypeVar("T")

_PARTS_AT_ONCE = 4
_CONNECT_TIMEOUT = timedelta(seconds=5)
_REQUEST_TIMEOUT = timedelta(seconds=30)
_RETRIES_MAX = 1000
"""In practice unlimited: only the retry timeout ends retries."""
_RANGE_NOT_SATISFIABLE = 416

_KEYS = "cold.s3_access_key_id, cold.s3_secret_access_key and cold.s3_session_token"
_HINTS = {
    301: "check cold.s3_region",
    400: "check cold.s3_region and cold.s3_endpoint",
    401: f"check {_KEYS}",
    403: f"check {_KEYS}, their permissions, and the clock of this machine",
    404: "check cold.s3_bucket, cold.s3_endpoint and cold.s3_region",
    501: "cold.s3_endpoint must support conditional PUT and multipart uploads",
    507: "the disks of the store are full",
}


@dataclass(frozen=True)
class Credentials:
    """The credentials of a request to S3."""

    access_key_id: str
    secret_access_key: str = field(repr=False)
    session_token: str = field(default="", repr=False)


class S3Store:
    """The objects below a prefix of a bucket, which must exist."""

    def __init__(
        self,
        bucket: str,
        prefix: str = "",
        *,
        region: str = "",
        endpoint: str = "",
        credentials: Credentials | None = None,
        patience: float = 10.0,
    ) -> None:
        """Without credentials, uses those of the environment, the container or the machine, as AWS tools do.

        `patience` is how many seconds a request is retried for.
        """
        self._bucket = bucket
        self._prefix = prefix.strip("/")
        self._endpoint = endpoint or "AWS"

        def opened(retries: int) -> stores.S3Store:
            return stores.S3Store(
                bucket,
                prefix=self._prefix or None,
                config=_config(region, endpoint),
                client_options={
                    "allow_http": endpoint.startswith("http://"),
                    "connect_timeout": _CONNECT_TIMEOUT,
                    "timeout": _REQUEST_TIMEOUT,
                },
                retry_config={
                    "max_retries": retries,
                    "retry_timeout": timedelta(seconds=patience),
                    "backoff": {
                        "init_backoff": timedelta(milliseconds=100),
                        "max_backoff": timedelta(seconds=2),
                        "base": 2,
                    },
                },
                credential_provider=_provider(credentials),
            )

        self._store = opened(_RETRIES_MAX)
        self._once = opened(0)  # a retried create could find the object that its first attempt made

    @property
    def root(self) -> str:
        """The bucket and the prefix, as a URL."""
        return f"s3://{self._bucket}/{self._prefix}".rstrip("/")

    async def put(self, key: str, data: bytes | memoryview) -> None:
        """Store an object, or replace it."""
        whole = memoryview(data).cast("B")  # obstore rejects views of signed bytes, which Arrow returns
        await self._do(
            obstore.put_async(
                self._store, check_key(key), whole, chunk_size=PART_BYTES, max_concurrency=_PARTS_AT_ONCE
            )
        )

    async def create(self, key: str, data: bytes) -> bool:
        """Store an object unless it exists; after a failure, it may or may not exist."""
        put = obstore.put_async(self._once, check_key(key), data, mode="create", use_multipart=False)
        try:
            await self._do(put)
        except _Exists:
            return False
        return True

    async def put_file(self, key: str, path: Path) -> None:
        """Turn a local file into an object, uploaded in parts."""
        await self._do(
            obstore.put_async(
                self._store, check_key(key), path, chunk_size=PART_BYTES, max_concurrency=_PARTS_AT_ONCE
            )
        )
        await asyncio.to_thread(path.unlink)

    async def get(self, key: str) -> bytes:
        """All of an object."""
        found = await self._find(key, lambda: obstore.get_async(self._store, check_key(key)))
        size = found.meta["size"]
        if size > PART_BYTES:
            return b"".join([part async for part in self._parts(key, size)])
        data = bytes(await self._do(found.bytes_async()))
        if len(data) != size:
            raise ObjectDamaged(key, f"it has {len(data)} bytes instead of {size}")
        return data

    async def get_range(self, key: str, start: int, end: int) -> bytes | memoryview:
        """The bytes from start up to end."""
        length = check_range(start, end)
        if not length:
            return b""
        data = await self._find(
            key, lambda: obstore.get_range_async(self._store, check_key(key), start=start, end=end)
        )
        if len(data) != length:
            raise ObjectDamaged(key, f"it ends before byte {end}")
        return memoryview(data)

    async def get_file(self, key: str, path: Path) -> None:
        """Copy an object to a local file, fetched in parts."""
        size = await self.size(key)
        try:
            with await asyncio.to_thread(path.open, "wb") as file:
                async for part in self._parts(key, size):
                    await asyncio.to_thread(file.write, part)
        except BaseException as error:
            await asyncio.to_thread(path.unlink, missing_ok=True)
            if isinstance(error, OSError):
                why = error.strerror or str(error)
                raise StoreUnavailable(f"cannot copy from the store to {path}: {why}") from error
            raise

    async def size(self, key: str) -> int:
        """How many bytes an object has."""
        found = await self._find(key, lambda: obstore.head_async(self._store, check_key(key)))
        return found["size"]

    async def list(self, prefix: str) -> list[ObjectInfo]:
        """The objects below a prefix, sorted by key."""
        listing = obstore.list(self._store, check_prefix(prefix) or None, chunk_size=1000)
        found = await self._do(listing.collect_async())
        return sorted(
            ObjectInfo(one["path"], one["size"], one["last_modified"].timestamp())
            for one in found
            if not one["path"].startswith(f"{UNFINISHED}/")
        )

    async def delete(self, keys: Sequence[str]) -> None:
        """Remove objects."""
        if keys:
            await self._do(obstore.delete_async(self._store, [check_key(key) for key in keys]))

    def local_range(self) -> None:
        """Nothing is on this machine."""

    def local_path(self, key: str) -> None:
        """Nothing is on this machine."""

    @property
    def unfinished(self) -> None:
        """Nothing is on this machine."""

    async def forget_unfinished(self, older_than: float | None = None) -> None:
        """Do nothing: a lifecycle rule of the bucket removes the parts of unfinished uploads."""

    async def close(self) -> None:
        """Do nothing: only idle connections are open, and they close by themselves."""

    async def _parts(self, key: str, size: int) -> AsyncIterator[bytes | memoryview]:
        """All of an object in parts, a few of them fetched at a time."""
        starts = range(0, size, PART_BYTES)
        for first in range(0, len(starts), _PARTS_AT_ONCE):
            batch = starts[first : first + _PARTS_AT_ONCE]
            ranges = [self.get_range(key, start, min(start + PART_BYTES, size)) for start in batch]
            for part in await asyncio.gather(*ranges):
                yield part

    async def _do(self, request: Awaitable[T]) -> T:
        """The response to a request; an error becomes a failure of the store."""
        try:
            return await request
        except AlreadyExistsError as error:
            raise _Exists from error
        except (BaseError, OSError) as error:
            raise self._unavailable(str(error)) from error

    async def _find(self, key: str, request: Callable[[], Awaitable[T]]) -> T:
        """The response to a request for an object, which may be missing or too short."""
        check_key(key)
        try:
            return await request()
        except FileNotFoundError as error:
            if "<Code>NoSuchKey<" not in str(error):  # the bucket may be missing
                await self._check_bucket()
            raise ObjectMissing(key) from error
        except (BaseError, OSError) as error:
            if _status(str(error)) == _RANGE_NOT_SATISFIABLE:
                raise ObjectDamaged(key, "it is shorter than it was when it was written") from error
            raise self._unavailable(str(error)) from error

    async def _check_bucket(self) -> None:
        """Fail unless the bucket exists and can be listed."""
        listing = obstore.list(self._store, "look-for-the-bucket/", chunk_size=1)
        await self._do(listing.collect_async())

    def _unavailable(self, text: str) -> StoreFailed:
        code = re.search(r"<Code>(\w+)</Code>", text)
        status = _status(text)
        if status is None and ("redential" in text or "169.254." in text):
            why = f"there are no credentials for it; set {_KEYS}, or the usual AWS environment variables"
        elif status is None:
            reason = text.partition("\n")[0].rpartition(" - ")[2].strip()
            why = f"no answer from {self._endpoint} ({reason}); check cold.s3_endpoint and the network"
        else:
            hint = _HINTS.get(status, "try again later" if status >= 500 else "check cold.s3_endpoint")
            why = f"{self._endpoint} responds with {status}{f' {code[1]}' if code else ''}; {hint}"
        return StoreUnavailable(f"the store {self.root}: {why}")


class _Exists(Exception):
    """The object exists."""


def _status(text: str) -> int | None:
    """The HTTP status in the text of an error; None if there was no response."""
    found = re.search(r"status code: ([0-9]{3})", text)
    return int(found[1]) if found else None


def _config(region: str, endpoint: str) -> "S3Config":
    """Only the settings that are set: obstore takes the rest from the AWS environment variables."""
    config: S3Config = {}
    if region:
        config["region"] = region
    if endpoint:
        config["endpoint"] = endpoint
        config["aws_endpoint_url_s3"] = endpoint  # otherwise the environment variable would win
        config["virtual_hosted_style_request"] = False
    return config


def _provider(credentials: Credentials | None) -> "Callable[[], S3Credential] | None":
    """These credentials and none from the environment, which may have the token of another account."""
    if credentials is None:
        return None

    def provide() -> "S3Credential":
        return {
            "access_key_id": credentials.access_key_id,
            "secret_access_key": credentials.secret_access_key,
            "token": credentials.session_token or None,
            "expires_at": None,
        }

    return provide
