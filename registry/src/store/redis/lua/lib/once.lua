-- Library in front of the scripts that recognise a repeat by a key of their call. The key outlives
-- any repeat.
-- earlier: the outcome of an earlier attempt of this call, if there was one.
local function earlier(key)
  local outcome = redis.call('GET', key)
  if not outcome then return nil end
  redis.call('EXPIRE', key, 60) -- a WAIT after it waits for the effect too
  return tonumber(outcome)
end

-- remember: keeps the outcome of this call for its repeat, and returns it.
local function remember(key, outcome)
  redis.call('SET', key, outcome, 'EX', 60)
  return outcome
end

