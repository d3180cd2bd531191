-- wrk: GET a stream from its beginning, or with another query.
-- Arguments: PATH, QUERY (optional).

require("summary")

local whole

function init(args)
  whole = wrk.format("GET", args[1] .. (args[2] or "?offset=-1"))
end

function request()
  return whole
end
