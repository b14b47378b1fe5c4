-- Library in front of the scripts that keep responses.
-- keep: stores the responses that ARGV lists from index `first` on: their number, for how many
--   seconds the two keys live, then key, expiry and value of each response. A response that never
--   expires keeps both keys for ever. Returns the index after them.
local function keep(responses, expiries, first)
  local count, seconds = tonumber(ARGV[first]), ARGV[first + 1]
  if count == 0 then return first + 2 end
  for i = first + 2, first + 1 + 3 * count, 3 do
    redis.call('HSET', responses, ARGV[i], ARGV[i + 2])
    redis.call('ZADD', expiries, ARGV[i + 1], ARGV[i])
  end
  local last = redis.call('ZRANGE', expiries, -1, -1, 'WITHSCORES')
  for _, key in ipairs({responses, expiries}) do
    if last[2] == 'inf' then redis.call('PERSIST', key) else redis.call('EXPIRE', key, seconds) end
  end
  return first + 2 + 3 * count
end

-- prune: removes a few responses that expired by `now`.
local function prune(responses, expiries, now)
  local expired = redis.call('ZRANGE', expiries, '-inf', now, 'BYSCORE', 'LIMIT', 0, 8)
  if #expired == 0 then return end
  redis.call('HDEL', responses, unpack(expired))
  redis.call('ZREM', expiries, unpack(expired))
end

