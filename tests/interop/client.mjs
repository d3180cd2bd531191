// @durable-streams/client against the server at a URL: node client.mjs URL
//
// The server is told to wait 300 ms in a long-poll and 1.2 s on an SSE connection, so that readers go round.
// (An SSE connection of less than a second is a broken one to this client.)

import assert from "node:assert/strict"
import test from "node:test"
import {
  DurableStream,
  FetchError,
  IdempotentProducer,
  StaleEpochError,
  stream,
} from "@durable-streams/client"
import { Wire } from "./wire.mjs"

const root = process.argv[2]
const json = "application/json"
const text = "text/plain"
const binary = "application/octet-stream"

let streams = 0

/** A stream that no other test uses. */
function create(contentType, options = {}) {
  return DurableStream.create({ url: `${root}/v1/stream/client-${streams++}`, contentType, ...options })
}

/** All values of a JSON stream. */
async function values(handle) {
  return (await stream({ url: handle.url, live: false })).json()
}

async function gather(iterable) {
  const gathered = []
  for await (const item of iterable) gathered.push(item)
  return gathered
}

function numbers(count, first = 0) {
  return Array.from({ length: count }, (_, index) => ({ n: first + index }))
}

const options = { timeout: 60_000 }

test("a stream is created, found, and created again only as it was", options, async () => {
  const url = `${root}/v1/stream/client-life`
  assert.deepEqual(await DurableStream.head({ url }), { exists: false })
  const handle = await DurableStream.create({ url, contentType: text, ttlSeconds: 3600, body: "hello" })
  await DurableStream.create({ url, contentType: text, ttlSeconds: 3600 })
  await assert.rejects(
    DurableStream.create({ url, contentType: json }),
    (error) => error instanceof FetchError && error.status === 409 && error.json.error.code === "stream_exists"
  )
  const { etag, ...found } = await handle.head()
  assert.deepEqual(found, {
    exists: true,
    contentType: text,
    offset: "00000000000000000005",
    cacheControl: "no-store",
    streamClosed: false,
  })
  assert.match(etag, /^".+:5:5"$/)
  assert.equal((await DurableStream.connect({ url })).contentType, text)
  await handle.delete()
  assert.deepEqual(await DurableStream.head({ url }), { exists: false })
})

test("appends are read back, from the start and from an offset", options, async () => {
  const handle = await create(json)
  await handle.append('{"n":0}')
  const { offset } = await handle.head()
  const wire = new Wire()
  const batching = new DurableStream({ url: handle.url, contentType: json, fetch: wire.fetch })
  await Promise.all(numbers(9, 1).map((value) => batching.append(JSON.stringify(value))))
  assert.ok(wire.answers.length < 9, "appends that overlap go into one request")
  assert.deepEqual(await values(handle), numbers(10))
  const rest = await stream({ url: handle.url, offset, live: false })
  assert.deepEqual(await rest.json(), numbers(9, 1))
  assert.equal(rest.upToDate, true)
  assert.equal(rest.offset, (await handle.head()).offset)
  await assert.rejects(stream({ url: `${root}/v1/stream/client-none`, live: false }), { status: 404 })
})

test("a sequence that goes back is refused", options, async () => {
  const handle = await create(json, { batching: false })
  await handle.append('{"n":0}', { seq: "b" })
  await assert.rejects(handle.append('{"n":1}', { seq: "a" }), { status: 409 })
  await handle.append('{"n":1}', { seq: "c" })
  assert.deepEqual(await values(handle), numbers(2))
})

test("a stream of many pages is read to its end", options, async () => {
  const handle = await create(binary)
  const parts = [1, 2, 3].map((number) => new Uint8Array(700_000).fill(number))
  await handle.appendStream((async function* () { yield* parts })())
  const wire = new Wire()
  const whole = await (await stream({ url: handle.url, fetch: wire.fetch })).body()
  assert.ok(Buffer.concat(parts).equals(whole))
  assert.equal(wire.answers.length, 3)
})

for (const live of ["long-poll", "sse"]) {
  test(`a JSON stream is followed by ${live} to its end`, options, async () => {
    const handle = await create(json)
    await handle.append('{"n":0}')
    const wire = new Wire()
    const response = await stream({ url: handle.url, live, fetch: wire.fetch })
    const items = response.jsonStream()[Symbol.asyncIterator]()
    assert.deepEqual(await items.next(), { done: false, value: { n: 0 } })

    const next = items.next()
    await wire.until((answers) => answers.filter((answer) => answer.live === live).length >= 3)
    assert.equal(response.upToDate, true)
    await handle.append('{"n":1}')
    assert.deepEqual(await next, { done: false, value: { n: 1 } })
    await Promise.all(numbers(50, 2).map((value) => handle.append(JSON.stringify(value))))
    for (const value of numbers(50, 2)) assert.deepEqual(await items.next(), { done: false, value })

    assert.equal(response.streamClosed, false)
    const { finalOffset } = await handle.close({ body: '{"n":52}' })
    assert.deepEqual(await items.next(), { done: false, value: { n: 52 } })
    assert.equal((await items.next()).done, true)
    await response.closed
    assert.equal(response.streamClosed, true)
    assert.equal(response.offset, finalOffset)
    const modes = new Set(wire.answers.map((answer) => answer.live))
    assert.deepEqual(modes, new Set([null, live]), "the client did not fall back to another mode")
    assert.equal(wire.statuses.includes(204), live === "long-poll", "a long-poll was in vain, an SSE never is")
  })

  test(`bytes and text are followed by ${live} unchanged`, options, async () => {
    const bytes = Uint8Array.from({ length: 256 }, (_, index) => index)
    const lines = "one\n two\n\n:three\ndata: four é漢😀\n"
    for (const [contentType, sent] of [[binary, bytes], [text, new TextEncoder().encode(lines)]]) {
      const handle = await create(contentType)
      const wire = new Wire()
      const response = await stream({ url: handle.url, live, fetch: wire.fetch })
      const received = gather(response.bodyStream())
      await handle.append(sent)
      await handle.close()
      assert.deepEqual(new Uint8Array(Buffer.concat(await received)), sent)
      assert.deepEqual(new Set(wire.answers.map((answer) => answer.live)), new Set([null, live]))
    }
  })
}

test("a stream that is closed is at its end at once, for every reader", options, async () => {
  const handle = await create(json, { body: "[1,2]", closed: true })
  assert.equal((await handle.head()).streamClosed, true)
  for (const live of [false, true, "long-poll", "sse"]) {
    const wire = new Wire()
    const response = await stream({ url: handle.url, live, fetch: wire.fetch })
    assert.deepEqual(await gather(response.jsonStream()), [1, 2])
    assert.equal(response.streamClosed, true)
    assert.equal(wire.answers.length, 1)
  }
})

test("nothing is appended after the end, and closing again changes nothing", options, async () => {
  const handle = await create(json)
  await handle.append("1")
  const { finalOffset } = await handle.close()
  assert.deepEqual(await handle.close(), { finalOffset })
  for (const late of [() => handle.append("2"), () => handle.close({ body: "2" })]) {
    await assert.rejects(late, (error) => {
      assert.equal(error.status, 409)
      assert.equal(error.headers["stream-closed"], "true")
      assert.equal(error.headers["stream-next-offset"], finalOffset)
      return true
    })
  }
  assert.deepEqual(await values(handle), [1])
})

test("a producer puts many appends into one request", options, async () => {
  const handle = await create(json)
  const wire = new Wire()
  const producer = new IdempotentProducer(handle, "batching", { fetch: wire.fetch })
  for (const value of numbers(100)) producer.append(JSON.stringify(value))
  await producer.flush()
  assert.deepEqual(wire.statuses, [200])
  assert.equal(producer.lastSuccessfulOffset, (await handle.head()).offset)
  assert.deepEqual(await values(handle), numbers(100))
})

test("a producer has many requests under way and keeps their order", options, async () => {
  const handle = await create(json)
  const failures = []
  const wire = new Wire()
  const producer = new IdempotentProducer(handle, "pipelining", {
    fetch: wire.fetch,
    maxBatchBytes: 20,
    maxInFlight: 5,
    onError: (error) => failures.push(error),
  })
  for (const value of numbers(200)) producer.append(JSON.stringify(value))
  await producer.flush()
  assert.deepEqual(failures, [])
  assert.ok(wire.answers.length > 50)
  assert.deepEqual(await values(handle), numbers(200))
})

test("a producer whose requests arrive in the wrong order sends the early one again", options, async () => {
  const handle = await create(json)
  const wire = new Wire()
  const producer = new IdempotentProducer(handle, "overtaking", {
    maxBatchBytes: 1,
    fetch: async (url, request) => {
      if (new Headers(request.headers).get("producer-seq") === "0") await wire.until(() => wire.statuses.includes(409))
      return wire.fetch(url, request)
    },
  })
  for (const value of numbers(2)) producer.append(JSON.stringify(value))
  await producer.flush()
  assert.deepEqual(wire.statuses, [409, 200, 200])
  assert.deepEqual(await values(handle), numbers(2))
})

test("a request that a producer sends twice is stored once", options, async () => {
  const handle = await create(json)
  const wire = new Wire()
  const twice = async (url, request) => {
    await wire.fetch(url, request)
    return wire.fetch(url, request)
  }
  const producer = new IdempotentProducer(handle, "retrying", { fetch: twice })
  for (const value of numbers(3)) {
    producer.append(JSON.stringify(value))
    await producer.flush()
  }
  assert.deepEqual(wire.statuses, [200, 204, 200, 204, 200, 204])
  const { finalOffset } = await producer.close('{"n":3}')
  assert.deepEqual(wire.statuses.slice(6), [200, 204])
  assert.equal(finalOffset, (await handle.head()).offset)
  assert.equal((await handle.head()).streamClosed, true)
  assert.deepEqual(await values(handle), numbers(4))
})

test("a producer whose answer was lost starts again and stores nothing twice", options, async () => {
  const handle = await create(json)
  const failures = []
  const unlucky = new IdempotentProducer(handle, "restarting", {
    fetch: async (url, request) => {
      assert.equal((await fetch(url, request)).status, 200)
      throw new TypeError("the answer was lost")
    },
    onError: (error) => failures.push(error.message),
  })
  unlucky.append('{"n":0}')
  await unlucky.flush()
  assert.deepEqual(failures, ["the answer was lost"])
  const wire = new Wire()
  const again = new IdempotentProducer(handle, "restarting", { fetch: wire.fetch })
  again.append('{"n":0}')
  await again.flush()
  again.append('{"n":1}')
  await again.flush()
  assert.deepEqual(wire.statuses, [204, 200])
  assert.deepEqual(await values(handle), numbers(2))
})

test("a producer that was replaced is fenced, and one that may claims the next epoch", options, async () => {
  const handle = await create(json)
  const failures = []
  const old = new IdempotentProducer(handle, "fenced", { onError: (error) => failures.push(error) })
  old.append('{"n":0}')
  await old.flush()
  const second = new IdempotentProducer(handle, "fenced", { epoch: 1 })
  second.append('{"n":1}')
  await second.flush()
  old.append('{"n":"from the dead"}')
  await old.flush()
  assert.equal(failures.length, 1)
  assert.ok(failures[0] instanceof StaleEpochError)
  assert.equal(failures[0].currentEpoch, 1)
  const third = new IdempotentProducer(handle, "fenced", { autoClaim: true })
  third.append('{"n":2}')
  await third.flush()
  assert.equal(third.epoch, 2)
  assert.deepEqual(await values(handle), numbers(3))
})
