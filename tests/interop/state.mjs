// @durable-streams/state against the server at a URL: node state.mjs URL
//
// The server is told to wait 300 ms in a long-poll and 1.2 s on an SSE connection, so that readers go round.

import assert from "node:assert/strict"
import test from "node:test"
import { DurableStream } from "@durable-streams/client"
import { createStateSchema, createStreamDB } from "@durable-streams/state/db"
import { Wire } from "./wire.mjs"

const root = process.argv[2]

/** A schema that takes every object with a name. */
const named = {
  "~standard": {
    version: 1,
    vendor: "ursula",
    validate: (value) =>
      typeof value?.name === "string" ? { value } : { issues: [{ message: "it has no name" }] },
  },
}

const state = createStateSchema({
  bears: { schema: named, type: "bear", primaryKey: "id" },
  caves: { schema: named, type: "cave", primaryKey: "id" },
})

/** The names in a collection by key. */
function names(collection) {
  return Object.fromEntries([...collection.entries()].map(([key, row]) => [key, row.name]))
}

for (const live of ["long-poll", "sse"]) {
  test(`a collection is what the stream says, and follows it by ${live}`, { timeout: 60_000 }, async (context) => {
    const url = `${root}/v1/stream/state-${live}`
    const writer = await DurableStream.create({ url, contentType: "application/json" })
    const append = (...events) =>
      Promise.all(events.map((event) => writer.append(JSON.stringify(event))))
    await append(
      state.bears.insert({ value: { id: "a", name: "Alma" } }),
      state.bears.insert({ value: { id: "b", name: "Bruno" } }),
      state.caves.insert({ value: { id: "a", name: "Deep" } }),
      state.bears.update({ value: { id: "a", name: "Anna" } })
    )

    const wire = new Wire()
    const db = createStreamDB({ streamOptions: { url, fetch: wire.fetch }, state, live })
    context.after(() => db.close())
    await db.preload()
    assert.deepEqual(names(db.collections.bears), { a: "Anna", b: "Bruno" })
    assert.deepEqual(names(db.collections.caves), { a: "Deep" })

    const changes = []
    const note = (batch) => changes.push(...batch.map(({ type, key, value }) => [type, key, value.name]))
    db.collections.bears.subscribeChanges(note, { includeInitialState: true })
    await wire.until((answers) => answers.filter((answer) => answer.live === live).length >= 3)
    const steps = [
      state.bears.insert({ value: { id: "c", name: "Cora" }, headers: { txid: "1" } }),
      state.bears.update({ value: { id: "b", name: "Bela" }, headers: { txid: "2" } }),
      state.bears.delete({ key: "a", headers: { txid: "3" } }),
      state.bears.upsert({ value: { id: "d", name: "Dora" }, headers: { txid: "4" } }),
      state.bears.upsert({ value: { id: "c", name: "Clara" }, headers: { txid: "5" } }),
      state.bears.delete({ key: "d", headers: { txid: "6" } }),
    ]
    for (const step of steps) {
      await append(step)
      await db.utils.awaitTxId(step.headers.txid)
    }
    assert.deepEqual(changes, [
      ["insert", "a", "Anna"],
      ["insert", "b", "Bruno"],
      ["insert", "c", "Cora"],
      ["update", "b", "Bela"],
      ["delete", "a", "Anna"],
      ["insert", "d", "Dora"],
      ["update", "c", "Clara"],
      ["delete", "d", "Dora"],
    ])
    assert.deepEqual(names(db.collections.bears), { b: "Bela", c: "Clara" })
    assert.deepEqual(names(db.collections.caves), { a: "Deep" })
    assert.equal(db.offset, (await writer.head()).offset)
    assert.deepEqual(new Set(wire.answers.map((answer) => answer.live)), new Set([null, live]))

    const late = createStreamDB({ streamOptions: { url }, state, live: false })
    context.after(() => late.close())
    await late.preload()
    assert.deepEqual(names(late.collections.bears), { b: "Bela", c: "Clara" })
  })
}
