-- Library in front of the scripts that hold blobs.
-- hold_of: what to write so that a holder keeps a blob until then, or for as long as before: holder,
--   end, and whether the blob is to be looked at then, which is not later than the end of its first
--   hold. Beside 16 holds, one that is of no schedule is that of all others.
local function hold_of(holds, blobs_due, id, holder, until_score)
  local earlier_end = redis.call('ZSCORE', holds, holder)
  local due = redis.call('ZSCORE', blobs_due, id)
  local is_schedule = holder:sub(1, 2) == 's:'
  if not earlier_end and not is_schedule and redis.call('ZCARD', holds) >= 16 then
    holder = 'others:'
    earlier_end = redis.call('ZSCORE', holds, holder)
  end
  if earlier_end and tonumber(earlier_end) > tonumber(until_score) then until_score = earlier_end end
  return holder, until_score, not due or tonumber(until_score) < tonumber(due)
end

-- hold: keeps a blob, as hold_of says.
local function hold(holds, blobs_due, id, holder, until_score, is_due)
  redis.call('ZADD', holds, until_score, holder)
  if is_due then redis.call('ZADD', blobs_due, until_score, id) end
end

