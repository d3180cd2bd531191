"""PUT on a stream: create it, or check that it exists as requested."""

from ...model.commands import Create, ForkPoint
from ...model.outcomes import Created, Refused
from ...model.text.media_type import DEFAULT, JSON, media_type_of
from ..body import offload
from ..errors import Problem
from ..exchange import Exchange
from ..syntax.headers import (
    ignored_attributes,
    parse_attributes_header,
    parse_lifetime,
    parse_producer,
    parse_stream_seq,
    wants_close,
)
from ..syntax.names import parse_source
from ..syntax.tokens import parse_number, parse_offset
from .append import if_match_of, record_headers
from .json_body import split_body


async def create_stream(exchange: Exchange) -> None:
    """Check the headers, read the body, and create the stream."""
    headers, target = exchange.headers, exchange.target
    producer, stream_seq = parse_producer(headers), parse_stream_seq(headers)
    ttl_seconds, expires_at = parse_lifetime(headers)
    fork = _fork_point(exchange)
    attributes = parse_attributes_header(headers)
    body = await exchange.read_body()
    content_type = headers.get("content-type") or None
    json_problem = None
    if fork is not None and not exchange.group.is_current:
        # Another node may have created the source, perhaps for the second time.
        await exchange.group.current()
    if content_type is None and fork is not None and body:
        source = exchange.group.describe(target.bucket, fork.source)
        if not isinstance(source, Refused):
            content_type = source.content_type
        else:  # by the time this is decided, it may exist with a type that needs splitting
            json_problem = "the source was created at the same moment: send the request again"
    messages: tuple[bytes, ...] = (body,) if body else ()
    if body and media_type_of(content_type or DEFAULT) == JSON:
        messages, json_problem = split_body(body, may_be_empty=True)
    command = Create(
        bucket=target.bucket,
        stream=target.stream,
        content_type=content_type,
        messages=messages,
        close=wants_close(headers),
        ttl_seconds=ttl_seconds,
        expires_at=expires_at,
        make_bucket=target.flat,
        fork=fork,
        producer=producer,
        stream_seq=stream_seq,
        if_match=if_match_of(exchange),
        incarnation=exchange.requested_incarnation(),
        attributes=attributes and attributes.stored,
    )
    created = exchange.expect(Created, await offload.propose(exchange, command, len(body), json_problem))
    reply_headers = exchange.state_headers(created.incarnation, created.tail, created.tail, created.closed)
    reply_headers.append(("content-type", created.content_type))
    reply_headers += record_headers(created)
    if attributes is not None:
        reply_headers += ignored_attributes(attributes.ignored)
    if created.new:
        reply_headers.append(("location", exchange.location()))
    exchange.reply_empty(201 if created.new else 200, reply_headers)


def _fork_point(exchange: Exchange) -> ForkPoint | None:
    headers = exchange.headers
    source, offset_text = headers.get("stream-forked-from"), headers.get("stream-fork-offset")
    sub_text = headers.get("stream-fork-sub-offset")
    if source is None:
        if offset_text is not None or sub_text is not None:
            raise Problem("header_invalid", "a fork offset needs Stream-Forked-From")
        return None
    sub_offset = 0 if sub_text is None else parse_number(sub_text)
    if sub_offset is None or sub_offset >= 2**63:
        raise Problem("invalid_offset", "Stream-Fork-Sub-Offset must be a whole number")
    if sub_offset and offset_text is None:
        raise Problem("invalid_offset", "Stream-Fork-Sub-Offset needs Stream-Fork-Offset")
    offset = None if offset_text is None else parse_offset(offset_text)
    if offset is not None and offset < 0:
        offset = 0 if offset == -1 else None
    return ForkPoint(parse_source(source, exchange.target), offset, sub_offset)
