-- Library in front of the scripts that hold blobs.
-- hold: keeps a blob for a holder until then. `due` is when the blob is looked at, if it is yet: not
--   later than the end of its first hold.
local function hold(holds, blobs_due, due, id, holder, until_score)
  redis.call('ZADD', holds, until_score, holder)
  if not due or tonumber(until_score) < tonumber(due) then
    redis.call('ZADD', blobs_due, until_score, id)
  end
end

