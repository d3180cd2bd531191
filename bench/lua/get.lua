-- wrk: GET the same again and again.
-- Arguments: PATH, with its query.

require("summary")

local whole

function init(args)
  whole = wrk.format("GET", args[1])
end

function request()
  return whole
end
