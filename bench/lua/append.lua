-- wrk: POST as many bytes to one stream after another.
-- Arguments: PREFIX (path before the number of a stream), STREAMS (how many), BYTES (of each message).

require("summary")

local requests, sent = {}, 0

function init(args)
  local prefix, streams = args[1], tonumber(args[2])
  local headers = { ["Content-Type"] = "application/octet-stream" }
  local body = string.rep("x", tonumber(args[3]))
  for number = 0, streams - 1 do
    requests[number + 1] = wrk.format("POST", prefix .. number, headers, body)
  end
end

function request()
  sent = sent + 1
  return requests[sent % #requests + 1]
end
