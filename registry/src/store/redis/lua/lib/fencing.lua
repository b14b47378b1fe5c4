-- Library in front of the scripts that write under a claim or keep responses.
-- holds: whether node, incarnation and epoch, as read from a conversation, equal ARGV 1 to 3.
local function holds(claim)
  return claim[1] == ARGV[1] and claim[2] == ARGV[2] and claim[3] == ARGV[3]
end

-- raise: sets the partition's floor so that no later claim is given `epoch` again.
local function raise(floor, epoch)
  if tonumber(redis.call('GET', floor) or '0') < tonumber(epoch) then
    redis.call('SET', floor, epoch)
  end
end

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

