-- What several scripts do; put in front of each.
-- holds: whether node, incarnation and epoch, read from a conversation, are ARGV 1 to 3.
local function holds(at)
  return at[1] == ARGV[1] and at[2] == ARGV[2] and at[3] == ARGV[3]
end

-- raise: lets no later claim in this partition have `epoch` again.
local function raise(floor, epoch)
  if tonumber(redis.call('GET', floor) or '0') < tonumber(epoch) then
    redis.call('SET', floor, epoch)
  end
end

-- keep: writes the answers that stand in ARGV from `at` on: their number, for how many seconds the
--   keys live, then key, expiry and value of each. One that never expires keeps the keys for ever.
local function keep(answers, expiries, at)
  local count, seconds = tonumber(ARGV[at]), ARGV[at + 1]
  if count == 0 then return end
  for i = at + 2, at + 1 + 3 * count, 3 do
    redis.call('HSET', answers, ARGV[i], ARGV[i + 2])
    redis.call('ZADD', expiries, ARGV[i + 1], ARGV[i])
  end
  local last = redis.call('ZRANGE', expiries, -1, -1, 'WITHSCORES')
  for _, key in ipairs({answers, expiries}) do
    if last[2] == 'inf' then redis.call('PERSIST', key) else redis.call('EXPIRE', key, seconds) end
  end
end

-- prune: removes a few answers that expired by `now`.
local function prune(answers, expiries, now)
  local old = redis.call('ZRANGE', expiries, '-inf', now, 'BYSCORE', 'LIMIT', 0, 8)
  if #old == 0 then return end
  redis.call('HDEL', answers, unpack(old))
  redis.call('ZREM', expiries, unpack(old))
end

