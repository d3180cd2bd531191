// @durable-streams/client follows a stream over SSE while much is written to it: node throughput.mjs URL
//
// The client gives SSE up for good after three connections of less than a second, and says nothing: so a server
// that ends connections too early loses readers.

import assert from "node:assert/strict"
import test from "node:test"
import { DurableStream, stream } from "@durable-streams/client"

const root = process.argv[2]
const MEBIBYTE = 1 << 20
const options = { timeout: 120_000 }

/** Appends `count` messages of about `size` bytes, so many at a time, waiting for `pause` after each time. */
async function write(handle, count, size, atATime, pause) {
  const padding = "x".repeat(size)
  for (let first = 0; first < count; first += atATime) {
    const messages = []
    for (let n = first; n < Math.min(first + atATime, count); n += 1) messages.push({ n, padding })
    const response = await fetch(handle.url, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(messages),
    })
    assert.equal(response.status, 204)
    await pause(first + messages.length)
  }
  await handle.close()
}

/** The numbers of all messages that arrive over SSE until the stream is closed, in order. */
async function follow(handle, requests) {
  const counting = (...request) => {
    requests.push(String(request[0]))
    return fetch(...request)
  }
  const session = await stream({ url: handle.url, offset: "-1", live: "sse", fetch: counting })
  const seen = []
  session.subscribeJson((batch) => {
    for (const item of batch.items) seen.push(item.n)
  })
  await session.closed
  return seen
}

function create(name) {
  return DurableStream.create({ url: `${root}/v1/stream/throughput-${name}`, contentType: "application/json" })
}

async function everyMessageOnce(name, count, size, atATime, pause) {
  const handle = await create(name)
  const requests = []
  const [seen] = await Promise.all([
    follow(handle, requests),
    write(handle, count, size, atATime, pause),
  ])
  assert.deepEqual(seen, Array.from({ length: count }, (_, n) => n))
  assert.ok(requests.length < 10, `${requests.length} connections`)
  assert.ok(!requests.some((url) => url.includes("long-poll")), `it did not fall back to long-poll: ${requests}`)
}

test("40 MiB as fast as possible arrive, every message once", options, async () => {
  await everyMessageOnce("fast", 20_480, 2048, 256, async () => {})
})

test("8 MiB/s for 6 s arrive, every message once", options, async () => {
  const began = Date.now()
  const size = 1024
  await everyMessageOnce("steady", (48 * MEBIBYTE) / size, size, 512, (written) => {
    const due = began + (written * size * 1000) / (8 * MEBIBYTE)
    return new Promise((resolve) => setTimeout(resolve, Math.max(0, due - Date.now())))
  })
})
