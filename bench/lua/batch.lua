-- wrk: POST a batch of frames of 256 bytes to one stream after another.
-- Arguments: PREFIX (path before the number of a stream), STREAMS (how many), FRAMES (in a batch).

require("summary")

local requests, sent = {}, 0

function init(args)
  local prefix, streams, frames = args[1], tonumber(args[2]), tonumber(args[3])
  local headers = { ["Content-Type"] = "application/octet-stream", ["Prefer"] = "return=minimal" }
  -- A frame is its length in four bytes, the highest first, and as many bytes.
  local body = string.rep("\0\0\1\0" .. string.rep("x", 256), frames)
  for number = 0, streams - 1 do
    requests[number + 1] = wrk.format("POST", prefix .. number .. "/append-batch", headers, body)
  end
end

function request()
  sent = sent + 1
  return requests[sent % #requests + 1]
end
