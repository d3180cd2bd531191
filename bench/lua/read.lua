-- wrk: GET a stream from its beginning.
-- Arguments: PATH.

require("summary")

local whole

function init(args)
  whole = wrk.format("GET", args[1] .. "?offset=-1")
end

function request()
  return whole
end
