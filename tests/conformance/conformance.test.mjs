// The official suite, against the server at CONFORMANCE_TEST_URL. The package's own command line is broken.
import { runConformanceTests } from "@durable-streams/server-conformance-tests"

runConformanceTests({
  baseUrl: process.env.CONFORMANCE_TEST_URL,
  subscriptions: false,
  longPollTimeoutMs: 20000,
})
