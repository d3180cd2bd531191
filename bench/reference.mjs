// The reference server: node reference.mjs PORT [DATA_FOLDER]. Without a folder it keeps everything in memory.
import { mkdirSync } from "node:fs"
import { DurableStreamTestServer } from "@durable-streams/server"

const [port, dataDir] = process.argv.slice(2)
if (dataDir) mkdirSync(dataDir, { recursive: true })

const server = new DurableStreamTestServer({ port: Number(port), host: "127.0.0.1", dataDir })
process.on("SIGTERM", async () => {
  await server.stop()
  process.exit(0)
})
await server.start()
