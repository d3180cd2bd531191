// The reference server on a port of its own, in memory: the second target of the client's tests.
import { DurableStreamTestServer } from "@durable-streams/server"

const server = new DurableStreamTestServer({ port: 0, host: "127.0.0.1", longPollTimeout: 500 })
console.log(await server.start())
process.stdin.on("end", () => process.exit(0)).resume() // it never outlives the tests
