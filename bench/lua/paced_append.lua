-- wrk: what append.lua does, so many times a second by all connections together.
-- Arguments: PREFIX, STREAMS, BYTES (see there), RATE (appends per second).

require("append")

local ffi = require("ffi")
ffi.cdef[[
  struct moment { long seconds; long microseconds; };
  int gettimeofday(struct moment *now, void *zone);
]]

local begin = init
local interval, slot = 0, 0
local now = ffi.new("struct moment")

function init(args)
  begin(args)
  interval = 1000 / tonumber(args[4])
end

local function milliseconds()
  ffi.C.gettimeofday(now, nil)
  return tonumber(now.seconds) * 1000 + tonumber(now.microseconds) / 1000
end

-- Each request has a slot of its own. Who is late catches up, but no further than from a second ago.
function delay()
  local at = milliseconds()
  slot = math.max(slot, at - 1000) + interval
  return math.max(0, math.floor(slot - at))
end
